"""The file control.json: what it asks, when it is read, and what is not obeyed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from glassformer.runs.control import GO_ON, MAX_BYTES, Control, ControlFile


def written(path: Path, **fields: object) -> None:
    path.with_name("new").write_text(json.dumps(fields), encoding="utf-8")
    os.replace(path.with_name("new"), path)


def test_single_steps_are_counted_from_the_pause(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    reader, writer = ControlFile(path), ControlFile(path)
    assert not reader.pauses(1)
    writer.write(Control(pause=True))
    assert reader.pauses(5) and reader.pauses(5), "as often as it is asked"
    writer.write(Control(pause=True).stepped().stepped())  # two clicks, of which the first was never seen
    assert [reader.pauses(step) for step in (5, 6, 7, 7)] == [False, False, True, True]
    writer.write(Control(pause=True, steps=3))
    assert [reader.pauses(step) for step in (7, 8)] == [False, True]
    writer.write(Control(pause=True, steps=1))  # a new pause, whose beginning was never seen
    assert [reader.pauses(step) for step in (8, 9)] == [False, True]
    writer.write(GO_ON)
    assert not reader.pauses(9)
    writer.write(Control(pause=True))
    assert reader.pauses(20)
    writer.remove()
    assert not reader.pauses(20)


def test_a_stop_is_read(tmp_path: Path) -> None:
    reader = ControlFile(tmp_path / "control.json")
    reader.write(Control(stop=True))
    assert reader.read() == Control(stop=True)


HOSTILE = {
    "an array": "[1]",
    "no JSON": "{",
    "another type": '{"pause": 1}',
    "an unknown field": '{"pause": true, "run": "rm"}',
    "negative steps": '{"pause": true, "steps": -1}',
    "endless steps": '{"pause": true, "steps": 10000000000}',
    "a fraction": '{"pause": true, "steps": 1.5}',
    "too large": json.dumps({"pause": True}) + " " * MAX_BYTES,
    "deep": "[" * 4000,
    "not UTF-8": b'{"pause": true}\xff',
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_sound_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path, content = tmp_path / "control.json", HOSTILE[name]
    reader = ControlFile(path)
    for _ in range(2):  # warned of once
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, ns=(1, len(os.listdir(tmp_path))))
        assert not reader.pauses(1)
        os.utime(path, ns=(2, 2))
        assert not reader.pauses(2)
    assert capsys.readouterr().err.count("it is ignored") == 1
    written(path, pause=True)
    assert reader.pauses(3), "a sound one is obeyed again"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert reader.pauses(3), "and stays what is asked"


@pytest.mark.skipif(sys.platform == "win32", reason="links and owners")
def test_links_folders_and_pipes_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, path = tmp_path / "elsewhere.json", tmp_path / "control.json"
    written(target, pause=True)
    for make in (lambda: path.symlink_to(target), path.mkdir, lambda: os.mkfifo(path)):
        make()
        reader = ControlFile(path)
        assert not reader.pauses(1)
        assert "should be a regular file" in capsys.readouterr().err
        reader.remove()
        path.rmdir() if path.is_dir() else None
        assert not os.path.lexists(path) and target.is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="owners")
def test_the_file_of_another_user_is_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "control.json"
    written(path, stop=True)
    state = os.lstat(path)
    other = os.stat_result((*state[:4], state.st_uid + 1, *state[5:]))
    monkeypatch.setattr(os, "lstat", lambda _: other)
    assert ControlFile(path).read() == GO_ON
    assert "of the owner of its folder" in capsys.readouterr().err

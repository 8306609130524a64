"""The file control.json: what it asks, when it is read, and what is not obeyed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.helpers.for_each import for_each

from glassformer.runs.folder import CONTINUE, PAUSE, Control, ControlFile
from glassformer.utils.safe_read import LIMITS


def test_it_pauses_until_a_later_step_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    reader, writer = ControlFile(path), ControlFile(path)
    assert not reader.pauses(1)
    writer.write(PAUSE)
    assert reader.pauses(5) and reader.pauses(5), "as often as it is asked"
    writer.write(Control(until=7))  # two clicks, of which the first was never seen
    assert [reader.pauses(step) for step in (5, 6, 7, 7)] == [False, False, True, True]
    writer.write(Control(until=8))
    assert [reader.pauses(step) for step in (7, 8)] == [False, True]
    writer.write(CONTINUE)
    assert not reader.pauses(9)
    writer.write(PAUSE)
    assert reader.pauses(20)
    writer.close()
    assert not reader.pauses(20)


@for_each("content", ["{", '{"until": -1}', json.dumps({"until": 1}) + " " * LIMITS["record"]])
def test_what_is_not_sound_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    path = tmp_path / "control.json"
    reader = ControlFile(path)
    path.write_text(content, encoding="utf-8")
    assert not reader.pauses(1) and not reader.pauses(2)
    assert capsys.readouterr().err.count("it is ignored") == 1
    reader.write(PAUSE)
    assert reader.pauses(3), "a sound one is obeyed again"
    path.write_text(content, encoding="utf-8")
    assert reader.pauses(3), "and stays what is asked"


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes")
def test_a_link_is_removed_alone_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    target, path = tmp_path / "elsewhere.json", tmp_path / "control.json"
    target.write_text("{}", encoding="utf-8")
    reader = ControlFile(path)
    for make in (lambda: path.symlink_to(target), path.mkdir, lambda: os.mkfifo(path)):
        make()
        assert not reader.pauses(1)
        reader.close()
        path.rmdir() if path.is_dir() else None
        assert not os.path.lexists(path) and target.is_file()

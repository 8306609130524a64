"""Files and folders are wholly there or not at all, whichever operation a process dies after."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest
from tests.helpers.crashing import every_crash

from glassformer.errors import ResourceError
from glassformer.utils import atomic_io, safe_read


def test_text_is_written_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "new" / "a.txt", "line\r\nnaïve \u2028 日本\n"
    before = os.umask(0o022)
    try:
        atomic_io.atomic_write_text(path, text)
    finally:
        os.umask(before)
    assert path.read_bytes() == text.encode("utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("how", [{}, {"torn": True}, {"power_cut": True}], ids=["kill", "torn", "power cut"])
def test_a_crash_leaves_the_old_content_or_the_new(tmp_path: Path, how: dict[str, bool]) -> None:
    """An unsynced file may be empty after a power cut; the rename that names it may not come first."""

    def write(folder: Path, text: str) -> None:
        atomic_io.atomic_write_text(folder / "a", text)

    crashes = every_crash(tmp_path, lambda f: write(f, "old"), lambda f: write(f, "new"), **how)
    assert {(folder / "a").read_text("utf-8") for folder, _ in crashes} == {"old", "new"}


def test_a_crash_leaves_a_whole_folder(tmp_path: Path) -> None:
    def write(folder: Path, content: str) -> None:
        with atomic_io.write_folder_atomically(folder / "f") as temporary:
            for name in ("a", "b"):
                (temporary / name).write_text(content, "utf-8")
            atomic_io.remove_folder(folder / "f")

    seen = set()
    for folder, _ in every_crash(tmp_path, lambda f: write(f, "old"), lambda f: write(f, "new")):
        seen.add(tuple((folder / "f" / name).read_text("utf-8") for name in "ab" if (folder / "f").exists()))
        atomic_io.remove_leftovers(folder)
        assert all(p.name == "f" for p in folder.iterdir())
    assert seen == {("old", "old"), (), ("new", "new")}


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), atomic_io.write_folder_atomically(tmp_path / "f") as temporary:
        (temporary / "deep").mkdir()
        (temporary / "deep" / "a").write_bytes(b"x")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_of_a_folder_the_first_stands(tmp_path: Path) -> None:
    with (
        pytest.raises(ResourceError, match="f cannot be written"),
        atomic_io.write_folder_atomically(tmp_path / "f") as slow,
    ):
        (slow / "a").write_text("slow", "utf-8")
        with atomic_io.write_folder_atomically(tmp_path / "f") as quick:
            (quick / "a").write_text("quick", "utf-8")
    assert (tmp_path / "f" / "a").read_text("utf-8") == "quick"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_disk_error_says_what_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ResourceError, match="file") as caught:
        atomic_io.atomic_write_text(tmp_path / "file" / "a", "x")
    assert caught.value.hint


def test_a_folder_half_removed_does_not_look_like_a_folder(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        with atomic_io.write_folder_atomically(folder / "f") as temporary:
            for name in "abc":
                (temporary / name).write_bytes(b"x")

    for folder, completed in every_crash(tmp_path, prepare, lambda f: atomic_io.remove_folder(f / "f")):
        assert not (folder / "f").exists() or len(list((folder / "f").iterdir())) == 3
        atomic_io.remove_leftovers(folder)
        assert list(folder.glob(".*")) == []
        assert not completed or list(folder.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    for name in ("precious", "doomed"):
        (tmp_path / name).mkdir()
    (tmp_path / "precious" / "a").write_bytes(b"x")
    (tmp_path / "doomed" / "link").symlink_to(tmp_path / "precious", target_is_directory=True)
    atomic_io.remove_folder(tmp_path / "doomed")
    assert not (tmp_path / "doomed").exists() and (tmp_path / "precious" / "a").exists()


def test_json_has_no_nan_and_a_line_of_it_is_one_for_every_reader(tmp_path: Path) -> None:
    value = {"text": "a日\u2028b\u2029c\u0085d\r\ne\x0bf\x1cg", "numbers": [1, 2.5, None], "nested": {"a": True}}
    atomic_io.write_json(tmp_path / "a.json", value | {"x": [math.nan, (math.inf, 1.0)]})
    assert safe_read.read_json(tmp_path / "a.json") == value | {"x": [None, [None, 1.0]]}
    line = atomic_io.json_line(value | {"share": math.nan})
    assert line.splitlines() == [line] and json.loads(line) == value | {"share": None}


def test_sha256_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert atomic_io.sha256_file(tmp_path / "a") == known
    assert atomic_io.write_durably(tmp_path / "b", [b"a", memoryview(b"bc")]) == known

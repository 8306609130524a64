"""Files and folders are wholly there or not at all, and of others only regular ones of bounded size are read."""

import json
import math
import os
import stat
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.crashing import every_crash

from glassformer.errors import CheckpointError, ResourceError
from glassformer.runs.records import StepMetrics
from glassformer.utils import atomic_io, safe_read


def test_text_is_written_as_it_is(tmp_path):
    path, text = tmp_path / "new" / "a.txt", "line\r\nnaïve \u2028 日本\n"
    before = os.umask(0o022)
    try:
        atomic_io.atomic_write_text(path, text)
    finally:
        os.umask(before)
    assert path.read_bytes() == text.encode("utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("how", [{}, {"torn": True}, {"power_cut": True}], ids=["kill", "torn", "power cut"])
def test_a_crash_leaves_the_old_content_or_the_new(tmp_path, how):
    """An unsynced file may be empty after a power cut; the rename that names it may not come first."""

    def write(folder: Path, text: str) -> None:
        atomic_io.atomic_write_text(folder / "a", text)

    crashes = every_crash(tmp_path, lambda f: write(f, "old"), lambda f: write(f, "new"), **how)
    assert {(folder / "a").read_text("utf-8") for folder, _ in crashes} == {"old", "new"}


def test_a_crash_leaves_a_whole_folder(tmp_path):
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


def test_of_two_writers_of_a_folder_the_first_stands(tmp_path):
    write = partial(atomic_io.write_folder_atomically, tmp_path / "f")
    with pytest.raises(ResourceError, match="f cannot be written"), write() as slow:
        (slow / "a").write_text("slow", "utf-8")
        with write() as quick:
            (quick / "a").write_text("quick", "utf-8")
    assert (tmp_path / "f" / "a").read_text("utf-8") == "quick"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_disk_error_says_what_and_what_to_do(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ResourceError, match="file") as caught:
        atomic_io.atomic_write_text(tmp_path / "file" / "a", "x")
    assert caught.value.hint


def test_a_folder_half_removed_does_not_look_like_a_folder(tmp_path):
    def prepare(folder: Path) -> None:
        with atomic_io.write_folder_atomically(folder / "f") as temporary:
            for name in "abc":
                (temporary / name).write_bytes(b"x")

    for folder, completed in every_crash(tmp_path, prepare, lambda f: atomic_io.remove_folder(f / "f")):
        assert not (folder / "f").exists() or len(list((folder / "f").iterdir())) == 3
        atomic_io.remove_leftovers(folder)
        assert list(folder.glob(".*")) == []
        assert not completed or list(folder.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path):
    for name in ("precious", "doomed"):
        (tmp_path / name).mkdir()
    (tmp_path / "precious" / "a").write_bytes(b"x")
    (tmp_path / "doomed" / "link").symlink_to(tmp_path / "precious", target_is_directory=True)
    atomic_io.remove_folder(tmp_path / "doomed")
    assert not (tmp_path / "doomed").exists() and (tmp_path / "precious" / "a").exists()


def test_json_has_no_nan_and_a_line_of_it_is_one_for_every_reader(tmp_path):
    value = {"text": "a日\u2028b\u2029c\u0085d\r\ne\x0bf\x1cg", "numbers": [1, 2.5, None], "nested": {"a": True}}
    atomic_io.write_json(tmp_path / "a.json", value | {"x": [math.nan, (math.inf, 1.0)]})
    assert safe_read.read_json(tmp_path / "a.json") == value | {"x": [None, [None, 1.0]]}
    line = atomic_io.json_line(value | {"share": math.nan})
    assert line.splitlines() == [line] and json.loads(line) == value | {"share": None}


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert atomic_io.sha256_file(tmp_path / "a") == known
    assert atomic_io.write_durably(tmp_path / "b", [b"a", memoryview(b"bc")]) == known


# Files of others are read if they are regular and of bounded size, and anything else is one kind of error


def test_a_link_to_a_regular_file_is_read_and_a_sparse_file_is_not(tmp_path):
    (tmp_path / "a").write_text('{"x": 1}', "utf-8")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert safe_read.read_json_object(tmp_path / "b") == {"x": 1}
    os.truncate(tmp_path / "a", 20 << 30)
    with pytest.raises(CheckpointError, match="at most"):
        safe_read.read_json(tmp_path / "a")


def test_toml_is_bounded_in_depth_and_parts_of_a_key(tmp_path):
    path, dots = tmp_path / "a.toml", "." * 500
    path.write_text(f"a = \"{dots}\"\nb = [1.5, 2.5]\n[c.d]\ne = '{dots}'\n", "utf-8")
    assert safe_read.read_toml(path) == {"a": dots, "b": [1.5, 2.5], "c": {"d": {"e": dots}}}
    for text in ("a = [" + "[" * 100_000, "a = " + "1" * 10_000, ".".join(["a"] * 100_000) + " = 1"):
        path.write_text(text, "utf-8")
        with pytest.raises(CheckpointError, match=r"a\.toml"):
            safe_read.read_toml(path)


def test_a_record_names_the_field_that_is_wrong():
    assert safe_read.from_json(str, b'"\\ud83d\\ude00"', "x") == "😀", "a pair of surrogates is a character"
    assert safe_read.from_json(StepMetrics, {"step": 3, "later": 1}, "x") == StepMetrics(3)
    for value, message in (
        ({}, "x: object missing required field `step`"),
        ({"step": "3"}, "x, `$.step`: expected `int`, got `str`"),
        ({"step": 0}, "x, `$.step`: expected `int` >= 1"),
        ({"step": 1, "valid": {"accuracy": "1"}}, "x, `$.valid[...]`: expected `float`, got `str`"),
        ([1], "x: expected `object`, got `array`"),
    ):
        with pytest.raises(CheckpointError) as caught:
            safe_read.from_json(StepMetrics, value, "x")
        assert caught.value.message == message and caught.value.hint

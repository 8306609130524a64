"""Lines and documents: split at "\\n" alone, strict UTF-8, every problem with its line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.data.diagnostics import MAX_KEPT, Diagnostics, read_document, read_lines
from glassformer.errors import DataError
from glassformer.runs.run_data import different_files

LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"), max_size=20)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, min_size=1), bom=st.booleans(), crlf=st.booleans(), final=st.booleans())
def test_any_lines_come_back(tmp_path, lines, bom, crlf, final):
    ending = "\r\n" if crlf else "\n"
    if lines[-1] == "":
        final = True  # an empty last line exists only by its end
    data = (("\ufeff" if bom else "") + ending.join(lines) + (ending if final else "")).encode()
    diagnostics = Diagnostics()
    assert read_lines(write(tmp_path / "a.txt", data), diagnostics) == lines
    assert not diagnostics.issues
    assert diagnostics.counts["byte order marks"] == bom
    assert diagnostics.counts["CRLF line ends"] == (len(lines) - (not final) if crlf else 0)
    assert diagnostics.hashes == {(tmp_path / "a.txt").as_posix(): hashlib.sha256(data).hexdigest()}
    assert read_document(tmp_path / "a.txt", Diagnostics()) == "\n".join(lines) + ("\n" if final else "")


@pytest.mark.parametrize(
    ("data", "line", "kind"),
    [
        (b"good\nb\xe4d\ngood\n", 2, "encoding"),
        (b"good\ngood\nno\0\n", 3, "nul"),
        ("text".encode("utf-16"), 1, "encoding"),
        (b"", 0, "empty file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, data, line, kind):
    path = write(tmp_path / "a.txt", data)
    diagnostics = Diagnostics()
    read_lines(path, diagnostics)
    assert [(p.path, p.line, p.kind) for p in diagnostics.issues] == [(str(path), line, kind)]


@pytest.mark.parametrize("data", [b"good\nb\xe4d\n", b"good\nno\0\n"])
def test_a_document_names_the_line_too(tmp_path, data):
    diagnostics = Diagnostics()
    assert read_document(write(tmp_path / "a.txt", data), diagnostics) == ""
    assert [p.line for p in diagnostics.issues] == [2]


def test_a_changed_file_is_noticed_beside_another_of_its_name(tmp_path):
    def hashes() -> dict[str, str]:
        diagnostics = Diagnostics()
        for folder in ("a", "b"):
            read_lines(tmp_path / folder / "x.csv", diagnostics)
        return diagnostics.hashes

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "x.csv", f"from {folder}\n".encode())
    before = hashes()
    assert different_files(before, hashes()) == []
    moved = {path.replace("/a/", "/c/"): sha for path, sha in before.items()}
    assert different_files(before, moved) == []
    for folder in ("b", "a"):  # whichever is read last
        write(tmp_path / folder / "x.csv", b"changed\n")
        assert different_files(before, hashes()) == [f"{(tmp_path / folder).as_posix()}/x.csv"]
        write(tmp_path / folder / "x.csv", f"from {folder}\n".encode())
    assert different_files(before, {}) == sorted(before)


def test_the_first_of_many_problems_is_raised_and_the_others_counted(tmp_path):
    diagnostics = Diagnostics()
    for line in range(2, 3002):
        diagnostics.error(tmp_path / "a.txt", line, "nul", "byte 1 of the line is NUL")
    assert len(diagnostics.issues) == MAX_KEPT
    with pytest.raises(DataError, match=r"a\.txt:2: .*\(and 2,999 more problems\)"):
        diagnostics.raise_if_any()
    Diagnostics().raise_if_any()

"""Files of text: split at "\\n" alone, strict UTF-8, folders, gzip; what is none is named with its line."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from tests.helpers.reading import read

from glassformer.data import diagnostics
from glassformer.data.diagnostics import MOST_OF_A_KIND, Diagnostics, numbered_lines, read_document
from glassformer.errors import DataError

LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"), max_size=20)
CSV = "text,label\n" + "".join(f"film {i},{('neg', 'pos')[i % 2]}\n" for i in range(20))
JSONL = "".join(json.dumps({"text": f"film {i}", "label": "np"[i % 2]}) + "\n" for i in range(20))
TEXT = "".join(f"Once upon a time, there was text {i}.\n" for i in range(20))
unix = pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with a name")


def read_lines(path: Path, found: Diagnostics) -> list[str]:
    return [line for _, line in numbered_lines(path, found)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, min_size=1), bom=st.booleans(), crlf=st.booleans(), final=st.booleans())
def test_any_lines_come_back(tmp_path, lines, bom, crlf, final):
    ending, path, found = "\r\n" if crlf else "\n", tmp_path / "a.txt", Diagnostics()
    final = final or lines[-1] == ""  # an empty last line exists only by its end
    data = ("\ufeff" * bom + ending.join(lines) + ending * final).encode()
    path.write_bytes(data)
    assert read_lines(path, found) == lines and not found.issues
    assert found.counts["byte order marks"] == bom
    assert found.counts["CRLF line ends"] == (len(lines) - (not final) if crlf else 0)
    assert found.hashes == {path.as_posix(): hashlib.sha256(data).hexdigest()}
    assert read_document(path, Diagnostics()) == "\n".join(lines) + "\n" * final


@for_each(
    ("data", "line", "kind"),
    [
        (b"good\nb\xe4d\ngood\n", 2, "encoding"),
        (b"good\ngood\nno\0\n", 3, "nul"),
        ("text".encode("utf-16"), 1, "encoding"),
        (b"", 0, "empty file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, data: bytes, line: int, kind: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    for reader in (read_lines, read_document) if data else (read_lines,):
        found = Diagnostics()
        assert not (reader(path, found) and reader is read_document)
        assert [(p.path, p.line, p.kind) for p in found.issues] == [(str(path), line, kind)]


@for_each("data", [b"PAR1\x15\x04", b"PK\x03\x04\x14\0"])
def test_a_table_of_another_kind_under_this_name_is_called_so(tmp_path: Path, data: bytes) -> None:
    assert "is no text: Parquet, or a workbook" in read(tmp_path, data).message


def test_the_first_of_many_problems_is_raised_and_the_others_counted(tmp_path: Path) -> None:
    found = Diagnostics()
    for line in range(2, 3002):
        found.error(tmp_path / "a.txt", line, "nul", "byte 1 of the line is NUL")
    assert len(found.issues) == MOST_OF_A_KIND
    with pytest.raises(DataError, match=r"a\.txt:2: .*\(and 2,999 more problems\)"):
        found.raise_if_any()
    Diagnostics().raise_if_any()


@unix
@for_each("task", ["lm", "pretrain"])
def test_a_folder_is_read_whole_and_the_rest_is_named(task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Text under unusual names and behind links; other files are counted."""
    path = tmp_path_factory.mktemp(task) / "folder"
    (path / "sub").mkdir(parents=True)
    (path.parent / "outside").mkdir()
    (path / "BOOK.TXT").write_text(TEXT)
    (path / "sub" / "part.Txt.GZ").write_bytes(gzip.compress(b"second text, compressed\n", mtime=0))
    (path.parent / "outside" / "linked.txt").write_text("third text, behind a link\n")
    (path / "readme.md").write_text("no text")
    for link, target in {"link": "../outside", "again": "sub", "sub/up": "..", "dangling": "nowhere.txt"}.items():
        (path / link).symlink_to(target)
    found = read(path, TEXT, "BOOK.TXT", task, train_file=str(path)).report
    assert found.ok and found.counts["other files not read"] == 5
    assert any("5 other files not read (again, dangling, link, …)" in note for note in found.notes)
    assert found.sizes["train"] == (len(TEXT) + 24 if task == "lm" else 21)


OTHERS = [("a.jsonl", JSONL), ("a.CSV", CSV), ("a.tsv", CSV), ("a.json", "[1]"), ("a.html", "<p>")]


@for_each(("name", "content"), OTHERS)
def test_what_is_no_running_text_is_refused(tmp_path: Path, name: str, content: str) -> None:
    assert [issue.kind for issue in read(tmp_path, content, name, "lm").report.errors] == ["format"]
    assert not read(tmp_path, TEXT, "b.txt", "lm", valid_file=str(tmp_path / name)).report.ok


COMPRESSED = {"a.csv.gz": CSV, "A.JSONL.GZ": JSONL, "a.tsv.gz": CSV.replace(",", "\t"), "plain-name.csv": CSV}


@for_each(("name", "task"), [*((n, "classify") for n in COMPRESSED), ("a.txt.gz", "lm"), ("a.txt.gz", "pretrain")])
def test_gzip_is_read_as_what_is_in_it(tmp_path: Path, name: str, task: str) -> None:
    data = gzip.compress(COMPRESSED.get(name, TEXT).encode())
    assert read(tmp_path, data, name, task).report.sizes == {"train": len(TEXT) if task == "lm" else 20}
    for damaged in (data[:-9], data[:40], data + b"junk"):
        [issue] = read(tmp_path, damaged, name, task).report.errors
        assert issue.kind == "gzip" and issue.line >= 1


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "MAX_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text\n" * (1 << 19)))
    for reader in (read_document, read_lines):
        with pytest.raises(DataError, match="unpacks to more than"):
            reader(tmp_path / "a.txt.gz", Diagnostics())


@unix
@for_each(("name", "task"), [("a.csv", "classify"), ("a.txt", "pretrain"), ("b.txt", "lm")])
def test_a_pipe_is_refused(tmp_path: Path, name: str, task: str) -> None:
    os.mkfifo(tmp_path / f"pipe-{name}")
    found = read(tmp_path, TEXT, name, task, train_file=str(tmp_path / f"pipe-{name}"))
    assert "a pipe or a device; write what it gives to a file" in found.message


NOTED = {
    JSONL: "its lines are JSON objects",
    TEXT.replace("Once", "<p>Once"): "hold markup",
    TEXT.replace("Once", "3 < 4 > 2"): "",
    TEXT: "",
}


@for_each("task", ["lm", "pretrain"])
@for_each(("content", "words"), NOTED.items())
def test_json_and_markup_named_txt_are_noted(task: str, content: str, words: str, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        found = read(tmp_path, content, name, task, **({"train_file": str(tmp_path)} if name == "b.txt" else {})).report
        notes = [note for note in found.notes if "read as they are written" in note]
        assert len(notes) == bool(words) and all(words in note for note in notes)

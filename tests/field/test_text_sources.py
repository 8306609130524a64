"""Folders, gzip, and files that are no running text."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from glassformer.cli.main import main
from glassformer.data import diagnostics
from glassformer.data.diagnostics import Diagnostics, read_document, read_lines
from glassformer.errors import DataError

CSV = "text,label\n" + "".join(
    f"{'good' if i % 2 else 'bad'} film {i},{'pos' if i % 2 else 'neg'}\n" for i in range(20)
)
JSONL = "".join(json.dumps({"text": f"film {i}", "label": "pos" if i % 2 else "neg"}) + "\n" for i in range(20))
TSV = CSV.replace(",", "\t")
TEXT = "".join(f"Once upon a time, there was text {i}.\n" for i in range(20))
unix = pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with a name")


def check(capsys: pytest.CaptureFixture[str], recipe: str, path: Path | str) -> tuple[int, dict, str]:
    """Call `data check`; return its exit code, its JSON and its messages."""
    capsys.readouterr()
    code = main(["data", "check", recipe, "--train-file", str(path), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def folder_of(path: Path) -> Path:
    """Make a folder with text under unusual names, links, and other files."""
    (path / "sub").mkdir(parents=True)
    (path.parent / "outside").mkdir()
    (path / "BOOK.TXT").write_text(TEXT)
    (path / "sub" / "part.Txt.GZ").write_bytes(gzip.compress(b"second text, compressed\n", mtime=0))
    (path.parent / "outside" / "linked.txt").write_text("third text, behind a link\n")
    (path / "readme.md").write_text("no text")
    (path / "link").symlink_to(path.parent / "outside")
    (path / "again").symlink_to(path / "sub")
    (path / "sub" / "up").symlink_to("..")
    (path / "dangling").symlink_to("nowhere.txt")
    return path


@unix
@pytest.mark.parametrize("recipe", ["lm", "pretrain"])
def test_a_folder_is_read_whole_and_the_rest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    code, report, _ = check(capsys, recipe, folder_of(tmp_path / "folder"))
    assert code == 0 and report["counts"]["other files not read"] == 5
    assert any("5 other files not read (again, dangling, link, …)" in note for note in report["notes"])
    assert report["sizes"]["train"] == (len(TEXT) + 24 if recipe == "lm" else 21)


OTHERS = {
    "a.jsonl": JSONL,
    "a.CSV": CSV,
    "a.tsv": TSV,
    "a.ndjson": JSONL,
    "a.json": "[1]",
    "a.html": "<p>",
    "a.xlsx": "x",
}


@pytest.mark.parametrize("name", OTHERS)
def test_running_text_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path = tmp_path / name
    path.write_text(OTHERS[name])
    code, report, _ = check(capsys, "lm", path)
    assert code == 3 and [error["kind"] for error in report["errors"]] == ["format"]
    (tmp_path / "good.txt").write_text(TEXT)
    for part in ("train", "valid"):
        files = {"train": tmp_path / "good.txt"} | {part: path}
        flags = [word for key, file in files.items() for word in (f"--{key}-file", str(file))]
        assert main(["train", "lm", *flags, "--out", str(tmp_path / "out"), "--steps", "1"]) == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04 and so on", b"%PDF-1.7\n", b"PAR1", b"\x89PNG\r\n", gzip.compress(b"%PDF-1.7\n", mtime=0)]
)
def test_a_text_file_of_another_format_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    assert check(capsys, "lm", tmp_path / "a.txt")[0] == 3


COMPRESSED = {"a.csv.gz": CSV, "A.JSONL.GZ": JSONL, "a.tsv.gz": TSV, "plain-name.csv": CSV}


@pytest.mark.parametrize("name", COMPRESSED)
def test_gzip_is_read_as_what_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data = gzip.compress(COMPRESSED[name].encode())
    (tmp_path / name).write_bytes(data)
    code, report, _ = check(capsys, "classify", tmp_path / name)
    assert code == 0 and report["sizes"] == {"train": 20}
    for damaged in (data[:-9], data[:40], data + b"junk"):
        (tmp_path / name).write_bytes(damaged)
        code, report, _ = check(capsys, "classify", tmp_path / name)
        assert code == 3 and report["errors"][0]["kind"] == "gzip" and report["errors"][0]["line"] >= 1


@pytest.mark.parametrize("recipe", ["lm", "pretrain"])
def test_compressed_text_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert check(capsys, recipe, tmp_path / "a.txt.gz")[0] == 0
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT.encode())[:-4])
    assert check(capsys, recipe, tmp_path / "a.txt.gz")[0] == 3


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "MAX_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text\n" * (1 << 19)))
    for read in (read_document, read_lines):
        with pytest.raises(DataError, match="unpacks to more than"):
            read(tmp_path / "a.txt.gz", Diagnostics())


@unix
@pytest.mark.parametrize("recipe", ["classify", "pretrain", "lm"])
def test_a_pipe_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str) -> None:
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "a.csv").rename(path := tmp_path / ("a.csv" if recipe == "classify" else "a.txt"))
    code, report, _ = check(capsys, recipe, path)
    assert code == 3 and "a pipe or a device; write what it gives to a file" in report["errors"][0]["message"]


@pytest.mark.parametrize("recipe", ["lm", "pretrain"])
@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (JSONL, "its lines are JSON objects"),
        (TEXT.replace("Once", "<p>Once"), "hold markup"),
        (TEXT.replace("Once", "3 < 4 > 2"), ""),
        (TEXT, ""),
    ],
)
def test_json_and_markup_named_txt_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, is_folder: bool, content: str, words: str
) -> None:
    for name in ("a.txt", "b.txt")[: 1 + is_folder]:
        (tmp_path / name).write_text(content)
    code, report, _ = check(capsys, recipe, tmp_path if is_folder else tmp_path / "a.txt")
    notes = [note for note in report["notes"] if "read as they are written" in note]
    assert code == 0 and len(notes) == bool(words) and all(words in note for note in notes)

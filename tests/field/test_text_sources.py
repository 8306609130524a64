"""Folders, pipes, gzip, and files that are no running text."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassformer.cli.main import main
from glassformer.data import sources
from glassformer.data.diagnostics import Diagnostics, read_document, read_lines
from glassformer.data.shards import find_sources
from glassformer.errors import DataError, UsageError

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


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[object]:
    """Return a function that makes a named pipe and writes to it once."""
    threads = []

    def make(name: str, data: bytes) -> Path:
        path = tmp_path / name
        os.mkfifo(path)
        thread = threading.Thread(target=path.write_bytes, args=(data,), daemon=True)
        thread.start()
        threads.append(thread)
        return path

    yield make
    for thread in threads:
        thread.join(timeout=5)


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


@unix
def test_data_encode_reads_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "folder")
    assert [name for _, name in find_sources([folder])[0]] == ["BOOK.TXT", "sub/part.Txt.GZ"]
    argv = ["data", "encode", str(folder), "--out", str(tmp_path / "out"), "--vocab-size", "300"]
    assert main([*argv, "--valid-fraction", "0", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "5 other files not read (again, dangling, link, …)" in err and json.loads(out)["documents"] == 2


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
    if name not in ("a.jsonl", "a.ndjson"):
        assert main(["data", "encode", str(path), "--out", str(tmp_path / "out")]) == 3


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
    monkeypatch.setattr(sources, "MAX_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text\n" * (1 << 19)))
    for read in (read_document, read_lines):
        with pytest.raises(DataError, match="unpacks to more than"):
            read(tmp_path / "a.txt.gz", Diagnostics())


PIPED = {"csv": CSV, "jsonl": JSONL, "tsv": TSV}


@unix
@pytest.mark.parametrize("form", PIPED)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_pipe_is_read_by_its_content(capsys: pytest.CaptureFixture[str], pipe, form: str, compressed: bool) -> None:
    data = PIPED[form].encode()
    path = pipe("data", gzip.compress(data) if compressed else data)
    code, report, _ = check(capsys, "classify", path)
    assert code == 0 and report["sizes"] == {"train": 20}


@unix
@pytest.mark.parametrize(("recipe", "data", "code"), [("lm", TEXT, 0), ("pretrain", TEXT, 0), ("lm", JSONL, 3)])
def test_running_text_comes_through_a_pipe(
    capsys: pytest.CaptureFixture[str], pipe, recipe: str, data: str, code: int
) -> None:
    assert check(capsys, recipe, pipe("text", data.encode()))[0] == code


@unix
def test_an_open_descriptor_is_a_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a").write_text(CSV)
    with open(tmp_path / "a", "rb") as file:
        code, report, _ = check(capsys, "classify", f"/dev/fd/{file.fileno()}")
    assert code == 0 and report["sizes"] == {"train": 20}
    assert check(capsys, "lm", "/dev/null")[1]["errors"][0]["message"] == "this is a device, not a file"


@unix
def test_a_run_of_a_pipe_keeps_its_hash_and_not_its_data(
    tmp_path: Path, pipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import hashlib

    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    path, out = pipe("data.csv", CSV.encode()), str(tmp_path / "r")
    small = ["--model.n-layers", "1", "--model.d-model", "16", "--model.n-heads", "2", "--model.ensemble-size", "1"]
    argv = ["train", "classify", "--train-file", str(path), "--out", out, "--steps", "1", "--device", "cpu", *small]
    assert main(argv) == 0
    record = json.loads((tmp_path / "r" / "data.json").read_text())
    assert record["hashes"] == {str(path): hashlib.sha256(CSV.encode()).hexdigest()}
    assert record["pipes"] == [str(path)]
    for command in (["evaluate", out, "--split", "valid"], ["train", "--resume", out]):
        capsys.readouterr()
        assert main(command) == 3 and "was a pipe" in capsys.readouterr().err
    (tmp_path / "t.csv").write_text(CSV)
    assert main(["evaluate", out, "--test-file", str(tmp_path / "t.csv")]) == 0


@unix
def test_data_encode_refuses_a_pipe(pipe, tmp_path: Path) -> None:
    path = tmp_path / "p"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="pipe"):
        find_sources([path])


@pytest.mark.parametrize("recipe", ["lm", "pretrain"])
@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (JSONL, "its lines are JSON objects"),
        (CSV, "the header of a table"),
        (TSV, "the header of a table"),
        (TEXT.replace("Once", "<p>Once"), "hold markup"),
        (TEXT.replace("Once", "3 < 4 > 2"), ""),
        (TEXT, ""),
    ],
)
def test_a_table_named_txt_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, is_folder: bool, content: str, words: str
) -> None:
    for name in ("a.txt", "b.txt")[: 1 + is_folder]:
        (tmp_path / name).write_text(content)
    code, report, _ = check(capsys, recipe, tmp_path if is_folder else tmp_path / "a.txt")
    notes = [note for note in report["notes"] if "read as they are written" in note]
    assert code == 0 and len(notes) == bool(words) and all(words in note for note in notes)
    assert all(("2 files of this folder" in note) == is_folder for note in notes)

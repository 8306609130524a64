"""Files of text as streams of bytes, plain, compressed by gzip or a pipe, alone or in folders.

A pipe holds its bytes once. They are kept in memory, or beyond KEPT_BYTES in a temporary file, for as long as
`pipes_kept` lasts, so that what reads a part twice gets the same bytes. Which format a file holds its name says, a
final .gz aside; where a pipe has no such name, its first line does.

A suffix is compared without its case. A link to a folder is followed, but no folder is read twice, so that links in a
circle end.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import io
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from glassformer.errors import DataError

MAX_UNPACKED_BYTES = 1 << 30
"""Size of a compressed file when unpacked; a larger one may have been made to fill the memory."""
MAX_PIPE_BYTES = 4 << 30
KEPT_BYTES = 64 << 20
"""Bytes of a pipe that are kept in memory."""
GZIP_MAGIC = b"\x1f\x8b"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged gzip file raises."""
TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson")
COLUMN_FILES = (".parquet", ".arrow", ".feather")
"""Files of columns, which pyarrow reads."""
SAVED_DATASET, SAVED_SPLITS = "state.json", "dataset_dict.json"
"""What a folder holds that a `Dataset` or a `DatasetDict` of Hugging Face was saved to."""
OTHER_SUFFIXES = {
    (".json", ".ipynb"): "a JSON file",
    (".parquet", ".arrow", ".feather", ".avro", ".orc"): "a file of columns",
    (".xlsx", ".xls", ".xlsm", ".ods"): "a spreadsheet",
    (".html", ".htm", ".xhtml"): "an HTML page",
    (".xml",): "an XML file",
    (".pdf",): "a PDF file",
    (".doc", ".docx", ".odt", ".rtf", ".epub"): "a word processor's file",
    (".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"): "an archive",
    (".db", ".sqlite", ".sqlite3"): "a database",
    (".npy", ".npz", ".pt", ".pth", ".pkl", ".pickle", ".bin", ".safetensors", ".gguf"): "a file of numbers",
    (".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp3", ".mp4", ".wav"): "a picture or recording",
}
"""What is not plain text, by suffix."""
OTHER_MAGIC = {
    b"PK\x03\x04": "a zip archive, perhaps a spreadsheet",
    b"%PDF-": "a PDF file",
    b"PAR1": "a parquet file",
    b"{\\rtf": "a word processor's file",
    b"SQLite format 3": "a database",
    b"\x89PNG": "a picture",
    b"BZh91AY&SY": "an archive",
    b"\xfd7zXZ\x00": "an archive",
    b"\x28\xb5\x2f\xfd": "an archive",
}
"""What is not plain text, by its first bytes."""

_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/(\d{1,9})|/proc/self/fd/(\d{1,9})")
_kept: ContextVar[dict[str, BinaryIO] | None] = ContextVar("_kept", default=None)


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's name in lower case, without a final .gz: ".csv" of a.CSV.gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_saved_dataset(path: Path) -> bool:
    """Return whether a folder is a data set that the library `datasets` saved."""
    return path.is_dir() and (path / SAVED_DATASET).is_file()


def is_saved_splits(path: Path) -> bool:
    """Return whether a folder holds several such data sets, one a split."""
    return path.is_dir() and (path / SAVED_SPLITS).is_file()


def is_columnar(path: Path) -> bool:
    """Return whether rows are stored by columns, so that they have numbers and no lines."""
    return suffix_of(path) in COLUMN_FILES or is_saved_dataset(path)


def is_pipe(path: Path) -> bool:
    """Return True for what can be read once: a pipe, a socket, or an open descriptor such as /dev/stdin."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    once = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return once or (stat.S_ISREG(mode) and _DESCRIPTOR.fullmatch(str(path)) is not None)


def unreadable(path: Path) -> str:
    """Return why a path is neither a file nor a pipe; empty if it is."""
    if path.is_file() or is_pipe(path):
        return ""
    if path.is_dir():
        return "this is a folder, not a file"
    if path.exists():
        return "this is a device, not a file"
    near: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1, cutoff=0.8)
    return "there is no such file" + (f"; did you mean {near[0]!r}?" if near else "")


@contextlib.contextmanager
def pipes_kept() -> Iterator[None]:
    """Keep the content of each pipe that is read, until the outermost of these contexts ends."""
    if _kept.get() is not None:
        yield
        return
    files: dict[str, BinaryIO] = {}
    token = _kept.set(files)
    try:
        yield
    finally:
        _kept.reset(token)
        for file in files.values():
            file.close()


@contextlib.contextmanager
def open_source(path: Path, digest: Any = None) -> Iterator[BinaryIO]:
    """Open a file or pipe for reading, unpacked where its first bytes are those of gzip.

    `digest` is updated with the bytes as they are stored; it is complete once everything was read.

    Raises:
        DataError: it unpacks to more than MAX_UNPACKED_BYTES, or a pipe holds more than MAX_PIPE_BYTES.
    """
    with contextlib.ExitStack() as stack:
        if is_pipe(path):
            raw = _content_of_pipe(path)
            if _kept.get() is None:
                stack.enter_context(raw)
        else:
            raw = cast(BinaryIO, stack.enter_context(open(path, "rb", buffering=0)))
        file = io.BufferedReader(_Hashed(raw, digest), 1 << 16)
        if file.peek(2)[:2] == GZIP_MAGIC:
            unpacked = stack.enter_context(gzip.GzipFile(fileobj=file))
            yield cast(BinaryIO, io.BufferedReader(_Limited(unpacked, path), 1 << 16))
        else:
            yield cast(BinaryIO, file)


def format_of(path: Path) -> str:
    """Return the suffix that says what a file holds; of a pipe whose name says nothing, from its first line.

    A line that is a JSON object begins JSON Lines, one with a tab a TSV, one with a comma or semicolon a CSV.
    """
    named = suffix_of(path)
    if named in (*TABLES, ".txt") or not is_pipe(path):
        return named
    try:
        with open_source(path) as file:
            first = next((line for line in iter(lambda: file.readline(1 << 20), b"") if line.strip()), b"")
    except DAMAGED:
        return named  # reported when it is read
    first = first.removeprefix(b"\xef\xbb\xbf")
    if is_json_object(first):
        return ".jsonl"
    return ".tsv" if b"\t" in first else ".csv" if b"," in first or b";" in first else ".txt"


def other_format(path: Path) -> str:
    """Return what a file is that is not plain text, by its suffix or its first bytes: "a PDF file"; else ""."""
    for suffixes, name in OTHER_SUFFIXES.items():
        if suffix_of(path) in suffixes:
            return name
    try:
        with open_source(path) as file:
            first = file.read(16)
    except (*DAMAGED, OSError):
        return ""  # reported when it is read
    return next((name for magic, name in OTHER_MAGIC.items() if first.startswith(magic)), "")


def is_json_object(line: bytes) -> bool:
    """Return True if a line is a JSON object."""
    try:
        return line.lstrip().startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _content_of_pipe(path: Path) -> BinaryIO:
    """Return the whole content of a pipe, from its beginning; read now unless it is kept."""
    kept = _kept.get()
    if kept is not None and (file := kept.get(str(path))) is not None:
        file.seek(0)
        return file
    content = cast(BinaryIO, tempfile.SpooledTemporaryFile(KEPT_BYTES))  # noqa: SIM115
    with _open_pipe(path) as pipe:
        size = 0
        while block := pipe.read(1 << 20):
            if (size := size + len(block)) > MAX_PIPE_BYTES:
                message = f"{path}: more than {MAX_PIPE_BYTES >> 30} GiB came through this pipe"
                raise DataError(message, "write the data to a file")
            content.write(block)
    content.seek(0)
    if kept is not None:
        kept[str(path)] = content
    return content


def _open_pipe(path: Path) -> BinaryIO:
    if (found := _DESCRIPTOR.fullmatch(str(path))) is None:
        return open(path, "rb")
    number = int(found[1] or found[2] or 0)
    return open(os.dup(number), "rb")  # a socket or a file whose beginning was read cannot be opened by name


class _Hashed(io.RawIOBase):
    """A stream whose bytes update a hash."""

    def __init__(self, stream: Any, digest: Any) -> None:
        self._stream, self._digest = stream, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        if self._digest is not None:
            self._digest.update(data)
        return len(data)


class _Limited(io.RawIOBase):
    """The unpacked bytes of a file, of which there may be only so many."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream, self._path, self._n_read = stream, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        self._n_read += len(data)
        if self._n_read > MAX_UNPACKED_BYTES:
            message = f"{self._path}: unpacks to more than {MAX_UNPACKED_BYTES:,} bytes"
            raise DataError(message, "unpack it, and give the plain file")
        return len(data)


N_NAMED = 3


@dataclass(frozen=True)
class FolderContent:
    """What is in a folder.

    Args:
        texts: files to read, sorted by their path in the folder.
        others: paths in the folder, sorted, of what is not read: files of other kinds, dangling links, links to
            folders that are read already, and folders that cannot be opened.
    """

    texts: list[Path]
    others: list[str]


def read_folder(folder: Path, suffixes: Sequence[str]) -> FolderContent:
    """Return the files with these suffixes, or with .gz behind them, in a folder and its subfolders."""
    texts, others = list[Path](), list[str]()
    for path in _walk(folder):
        if path.is_file() and suffix_of(path) in suffixes:
            texts.append(path)
        else:
            others.append(path.relative_to(folder).as_posix())
    return FolderContent(sorted(texts, key=lambda path: path.relative_to(folder).as_posix()), sorted(others))


def not_read(names: Sequence[str]) -> str:
    """Return `3 other files not read (a.md, b.pdf, c/d.doc)`; empty if there are none."""
    if not names:
        return ""
    shown = ", ".join(names[:N_NAMED]) + (", …" if len(names) > N_NAMED else "")
    return f"{len(names):,} other file{'s' if len(names) > 1 else ''} not read ({shown})"


def not_read_record(names: Sequence[str]) -> dict[str, Any]:
    """Return the number of files that are not read and the first names, as JSON data."""
    return {"n": len(names), "names": list(names[:N_NAMED])}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder but is no folder, and links to folders that are not followed."""
    seen, links, unread, top = set[tuple[int, int]](), [folder], list[Path](), folder.resolve()
    while links:  # real folders before links to them, so that a file has its own name where it can
        root = links.pop(0)
        if root != folder and (_identity(root) in seen or top.is_relative_to(root.resolve())):
            yield root
            continue
        for path, names, files in os.walk(root, onerror=lambda error: unread.append(Path(error.filename))):
            here = Path(path)
            seen.add(_identity(here))
            linked = sorted(name for name in names if (here / name).is_symlink())
            links += [here / name for name in linked]
            names[:] = [name for name in names if name not in linked and _identity(here / name) not in seen]
            yield from (here / name for name in files)
    yield from (path for path in unread if path != folder)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino

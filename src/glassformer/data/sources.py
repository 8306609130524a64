"""Files of text as streams of bytes, plain, compressed by gzip or a pipe, alone or in folders.

A pipe holds its bytes once. They are kept in memory for as long as `pipes_kept` lasts, so that what reads a part twice
gets the same bytes. Which format a file holds its name says, a final .gz aside; where a pipe has no such name, its
first line does. A suffix is compared without its case. Links to folders are named, not followed.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from glassformer.errors import DataError

MAX_UNPACKED_BYTES = 1 << 30
"""Size of a pipe, and of a compressed file when unpacked; a larger one may have been made to fill the memory."""
GZIP_MAGIC = b"\x1f\x8b"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged gzip file raises."""
TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson")
COLUMN_FILES = (".parquet", ".arrow", ".feather")
"""Files of columns, which pyarrow reads."""
OTHER_SUFFIXES = {*COLUMN_FILES, *".json .ipynb .html .htm .xml .rtf .xlsx .xls .docx .doc .pdf .zip .tar".split()}
OTHER_MAGIC = (b"PK\x03\x04", b"%PDF-", b"PAR1", b"{\\rtf", b"\x89PNG")
"""What is not plain text, by its suffix and by its first bytes; other bytes that are no text are refused as read."""

_kept: ContextVar[dict[str, bytes] | None] = ContextVar("_kept", default=None)


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's name in lower case, without a final .gz: ".csv" of a.CSV.gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_columnar(path: Path) -> bool:
    """Return whether rows are stored by columns, so that they have numbers and no lines."""
    return suffix_of(path) in COLUMN_FILES


def is_pipe(path: Path) -> bool:
    """Return True for what can be read once: a pipe, or an open descriptor such as /dev/stdin."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    of_descriptor = str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))
    return stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and of_descriptor)


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
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


@contextlib.contextmanager
def open_source(path: Path, digest: Any = None) -> Iterator[BinaryIO]:
    """Open a file or pipe for reading, unpacked where its first bytes are those of gzip.

    `digest` is updated with the bytes as they are stored; it is complete once everything was read.

    Raises:
        DataError: it unpacks to more than MAX_UNPACKED_BYTES, or a pipe holds more.
    """
    n_unpacked = 0

    def count(data: bytes) -> None:
        nonlocal n_unpacked
        n_unpacked += len(data)
        if n_unpacked > MAX_UNPACKED_BYTES:
            message = f"{path}: unpacks to more than {MAX_UNPACKED_BYTES:,} bytes"
            raise DataError(message, "unpack it, and give the plain file")

    with io.BytesIO(_content_of_pipe(path)) if is_pipe(path) else open(path, "rb") as raw:
        file = io.BufferedReader(_Watched(raw, digest.update if digest else len), 1 << 16)
        if file.peek(2)[:2] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, io.BufferedReader(_Watched(unpacked, count), 1 << 16))
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
    """Return what a file is that is not plain text, by its suffix or its first bytes; "" for plain text."""
    first = b""
    with contextlib.suppress(*DAMAGED, OSError), open_source(path) as file:  # reported when it is read
        first = file.read(16)
    return "no plain text" if suffix_of(path) in OTHER_SUFFIXES or first.startswith(OTHER_MAGIC) else ""


def is_json_object(line: bytes) -> bool:
    """Return True if a line is a JSON object."""
    try:
        return line.lstrip().startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _content_of_pipe(path: Path) -> bytes:
    """Return the whole content of a pipe, which is read now unless it is kept."""
    kept = _kept.get()
    if kept is not None and str(path) in kept:
        return kept[str(path)]
    with open(path, "rb") as pipe:
        content = pipe.read(MAX_UNPACKED_BYTES + 1)
    if len(content) > MAX_UNPACKED_BYTES:
        message = f"{path}: more than {MAX_UNPACKED_BYTES:,} bytes came through this pipe"
        raise DataError(message, "write the data to a file")
    if kept is not None:
        kept[str(path)] = content
    return content


class _Watched(io.RawIOBase):
    """A stream whose bytes a function sees as they are read."""

    def __init__(self, stream: Any, watch: Callable[[bytes], Any]) -> None:
        self._stream, self._watch = stream, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        self._watch(data)
        return len(data)


N_NAMED = 3


class FolderContent(NamedTuple):
    """What is in a folder, by path: `texts` to read, and names of the `others`, also links that lead to no file."""

    texts: list[Path]
    others: list[str]


def read_folder(folder: Path, suffixes: Sequence[str]) -> FolderContent:
    """Return the files with these suffixes, or with .gz behind them, in a folder and its subfolders."""
    content, unread = FolderContent([], []), list[OSError]()
    paths = [
        Path(root, name)
        for root, folders, names in os.walk(folder, onerror=unread.append)
        for name in (*names, *(each for each in folders if Path(root, each).is_symlink()))
    ]
    paths += [Path(error.filename) for error in unread if Path(error.filename) != folder]
    for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_file() and suffix_of(path) in suffixes:
            content.texts.append(path)
        else:
            content.others.append(path.relative_to(folder).as_posix())
    return content


def not_read(names: Sequence[str]) -> str:
    """Return `3 other files not read (a.md, b.pdf, c/d.doc)`; empty if there are none."""
    if not names:
        return ""
    shown = ", ".join(names[:N_NAMED]) + (", …" if len(names) > N_NAMED else "")
    return f"{len(names):,} other file{'s' if len(names) > 1 else ''} not read ({shown})"


def not_read_record(names: Sequence[str]) -> dict[str, Any]:
    """Return the number of files that are not read and the first names, as JSON data."""
    return {"n": len(names), "names": list(names[:N_NAMED])}

"""Opens a file of text as a stream of bytes: plain, compressed by gzip, or a pipe.

A pipe holds its bytes once. They are kept in memory, or beyond KEPT_BYTES in a temporary file, for as long as
`pipes_kept` lasts, so that what reads a part twice gets the same bytes. Which format a file holds its name says, a
final .gz aside; where a pipe has no such name, its first line does.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextvars import ContextVar
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
    return "this is a device, not a file" if path.exists() else "there is no such file"


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

    Args:
        path: the file.
        digest: a hash, updated with the bytes as they are stored; complete once everything was read.

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

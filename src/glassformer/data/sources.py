"""Files of text as streams of bytes, plain or compressed by gzip.

Which format a file holds its name says, a final .gz aside; a suffix is compared without its case. What is no file, such
as a pipe, is refused: data is read again after training.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from glassformer.errors import DataError

MAX_UNPACKED_BYTES = 1 << 30
"""Size of a compressed file when unpacked; a larger one may have been made to fill the memory."""
GZIP_MAGIC = b"\x1f\x8b"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged gzip file raises."""
TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson")
COLUMN_FILES = (".parquet", ".arrow", ".feather")
"""Files of columns, which pyarrow reads."""


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's name in lower case, without a final .gz: ".csv" of a.CSV.gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_columnar(path: Path) -> bool:
    """Return whether rows are stored by columns, so that they have numbers and no lines."""
    return suffix_of(path) in COLUMN_FILES


def unreadable(path: Path) -> str:
    """Return why a path is no file; empty if it is one."""
    if path.is_file():
        return ""
    if path.is_dir():
        return "this is a folder, not a file"
    return "this is a pipe or a device; write what it gives to a file" if path.exists() else "there is no such file"


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; one that begins as gzip does is unpacked, in memory.

    Raises:
        DataError: it unpacks to more than MAX_UNPACKED_BYTES.
    """
    with open(path, "rb") as file:
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield file
            return
        content = gzip.GzipFile(fileobj=file).read(MAX_UNPACKED_BYTES + 1)
    if len(content) > MAX_UNPACKED_BYTES:
        message = f"{path}: unpacks to more than {MAX_UNPACKED_BYTES:,} bytes"
        raise DataError(message, "unpack it, and give the plain file")
    yield io.BytesIO(content)

"""The text of source files as a stream of segments, in bounded memory.

A segment is a document of JSON Lines, or a part of plain text, which may be one long document. A hash of the seed, the
file's name and the segment's position decides whether it is held out: so every reading of the text holds out the same.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from glassformer.data.pretokenized.config import PretokenizeConfig
from glassformer.errors import DataError, UsageError
from glassformer.text.splitting import find_split

SUFFIXES = (".txt", ".jsonl", ".ndjson")
SEGMENT_BYTES = 1 << 13


class SourceFile(NamedTuple):
    """A file of text, perhaps compressed; `name` is its path relative to the folder that was given."""

    path: Path
    name: str
    size: int
    mtime_ns: int


class Segment(NamedTuple):
    """A document, or a part of one that continues the segment before; `random` is 64 bits, drawn by seed."""

    text: str
    starts_document: bool
    held_out: bool
    random: int


def find_source_files(paths: Iterable[str | Path]) -> list[SourceFile]:
    """Return the given files, and in place of a given folder the text files in it, sorted by name.

    Raises:
        UsageError: a path does not exist.
        DataError: a folder holds no text file.
    """
    found: list[tuple[Path, str]] = []
    for path in map(Path, paths):
        if path.is_file():
            found.append((path, path.name))
        elif not path.is_dir():
            raise UsageError(f"{path}: there is no such file", "give a text file or a folder of them")
        elif inside := [p for p in sorted(path.rglob("*")) if p.is_file() and _suffix(p) in SUFFIXES]:
            found += [(p, p.relative_to(path).as_posix()) for p in inside]
        else:
            hint = f"give a folder with files of {', '.join(SUFFIXES)} or .gz of them"
            raise DataError(f"{path}: there is no text file in this folder", hint)
    return [SourceFile(path, name, path.stat().st_size, path.stat().st_mtime_ns) for path, name in found]


def read_segments(source: SourceFile, config: PretokenizeConfig) -> Iterator[Segment]:
    """Yield the segments of a file in order; empty documents are left out.

    Raises:
        DataError: the file is damaged, or not text in UTF-8; with file and line.
    """
    path, is_plain, follows_held_out = source.path, _suffix(source.path) not in SUFFIXES[1:], False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            texts = _split_text(file, path) if is_plain else _read_rows(file, path, config.column)
            for position, text in texts:
                key = f"{config.seed}\0{source.name}\0{position}".encode()
                random = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
                held_out = random < (config.valid_fraction or 0.0) * 2**64
                if text:
                    starts = not is_plain or position == 0 or follows_held_out
                    yield Segment(text, starts, held_out, random)
                    follows_held_out = held_out
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"{path}: the gzip file is damaged ({error})"
        raise DataError(message, "download or compress it again") from error


def _split_text(file: BufferedIOBase, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (n, part) of plain text; part n begins at the first place for a cut from byte n · SEGMENT_BYTES on."""
    decoder, text, line = codecs.getincrementaldecoder("utf-8-sig")(), "", 1
    for number in itertools.count():
        data, start = file.read(SEGMENT_BYTES), len(text)
        is_last = len(data) < SEGMENT_BYTES
        try:
            text += decoder.decode(data, is_last)
        except UnicodeDecodeError as error:
            line += text.count("\n") + error.object.count(b"\n", 0, error.start)
            message = f"{path}:{line}: 0x{error.object[error.start]:02X} is not UTF-8"
            raise DataError(message, "save the file as UTF-8") from None
        if "\0" in text:
            line += text.count("\n", 0, text.index("\0"))
            raise DataError(f"{path}:{line}: a byte is NUL", "check that this is a file of text")
        if is_last:
            yield max(0, number - 1), text.replace("\r\n", "\n")
            return
        if number:
            cut = find_split(text, start, len(text) - start) or start
            yield number - 1, text[:cut].replace("\r\n", "\n")
            text, line = text[cut:], line + text.count("\n", 0, cut)


def _read_rows(file: BufferedIOBase, path: Path, column: str) -> Iterator[tuple[int, str]]:
    """Yield (byte, text) of each row of JSON Lines."""
    position = 0
    for line, data in enumerate(file, start=1):
        if data.strip():
            try:
                text = json.loads(data)[column]
                text.encode()  # fails for half a surrogate pair
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                message = f"{path}:{line}: expected JSON with text in the field {column!r}, got: "
                message += data[:80].decode(errors="replace").rstrip()
                raise DataError(message, "name the field that holds the text: --column") from None
            yield position, text
        position += len(data)


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix

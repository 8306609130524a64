"""Text of any size as a stream: files, folders, JSON Lines and gzip, cut into units small enough to forget.

A unit is what is held out or not as a whole: a document, or, of a plain file, which is one document however long it
is, a stretch of it. Where units begin depends on the file alone, so that any number of processes, each with a part
of the input, and a run that goes on after a kill, find the same ones.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from glassformer.data.cuts import find_cut
from glassformer.data.reading import UTF16_MARKS
from glassformer.errors import DataError, UsageError

STRETCH = 1 << 15
"""Bytes of a plain file after which it is cut, at the next beginning of a line."""
FEW = 8
"""Stretches in a small part of a file."""
CONTEXT = 8
"""Bytes looked at before a place where a file might be cut."""
KINDS = (".txt", ".jsonl", ".ndjson")
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Source:
    """A file of text.

    Args:
        path: where it lies. name: what it is called in the folder that was named. size: in bytes, as it lies there.
        changed: when, in nanoseconds.
    """

    path: Path
    name: str
    size: int
    changed: int

    @staticmethod
    def at(path: Path, name: str) -> Source:
        """The file that is there now."""
        facts = path.stat()
        return Source(path, name, facts.st_size, facts.st_mtime_ns)

    def now(self) -> Source | None:
        """The same file as it is by now; None where it is gone."""
        return Source.at(self.path, self.name) if self.path.is_file() else None

    @property
    def zipped(self) -> bool:
        """Whether it has to be read from its beginning."""
        return self.path.suffix == ".gz"

    @property
    def plain(self) -> bool:
        """Whether it is text as it stands, and no table."""
        return Path(self.name.removesuffix(".gz")).suffix not in KINDS[1:]


@dataclass(frozen=True)
class Part:
    """Of a source the units that begin in the bytes start to stop; both are multiples of STRETCH, or the end."""

    source: Source
    start: int
    stop: int

    def in_small_parts(self) -> Iterator[Part]:
        """The same in parts of a few stretches; a zipped file, which is read from its beginning, stays whole."""
        step = self.source.size if self.source.zipped else FEW * STRETCH
        for start in range(self.start, self.stop, step):
            yield Part(self.source, start, min(start + step, self.stop))


@dataclass(frozen=True)
class Unit:
    """A piece of text with its place in its file.

    Args:
        place: the number of the stretch, or the byte at which the document begins. text: of it, line ends "\\n".
        begins: whether a document begins with it; if not, it goes on from the stretch before.
    """

    place: int
    text: str
    begins: bool = True


@dataclass(frozen=True)
class Layout:
    """How documents lie in the files.

    Args:
        separator: a line of plain text that stands between two documents; None where a file is one document.
        column: of JSON Lines, the field that holds the text.
    """

    separator: str | None = None
    column: str = "text"


def find_sources(named: Iterable[str | Path]) -> list[Source]:
    """The files that are named, and those of text in folders that are, in the order of their names.

    Raises:
        UsageError: one is not there, or is of a kind that is not read. DataError: a folder holds none.
    """
    found: list[Source] = []
    for path in map(Path, named):
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and _kind(p) in KINDS)
            if not files:
                told = f"{path}: there is no file of text in this folder"
                raise DataError(told, f"it reads {', '.join(KINDS)} and .gz of them")
            found += [Source.at(file, file.relative_to(path).as_posix()) for file in files]
        elif not path.is_file():
            raise UsageError(f"{path}: there is no such file", "name a file or a folder of text")
        elif path.suffix in (".parquet", ".zst", ".zip"):
            told = f"{path}: {path.suffix} is not read"
            raise UsageError(told, 'write its texts as .jsonl, one {"text": …} a line; .gz of that is read')
        else:
            found.append(Source.at(path, path.name))
    return found


def cut_into_blocks(sources: Iterable[Source], size: int) -> list[list[Part]]:
    """The sources in blocks of about `size` bytes, the work of one process at a time; a zipped file stays whole."""
    blocks: list[list[Part]] = [[]]
    size = room = max(1, size // STRETCH) * STRETCH
    for source in sources:
        start = 0
        while start < source.size:
            stop = (
                source.size
                if source.zipped
                else min(source.size, start + math.ceil(room / STRETCH) * STRETCH)
            )
            blocks[-1].append(Part(source, start, stop))
            room -= stop - start
            start = stop
            if room <= 0:
                blocks.append([])
                room = size
    return [block for block in blocks if block]


def units_of(part: Part, layout: Layout) -> Iterator[Unit]:
    """The units that begin in a part, in order; empty ones too.

    Raises:
        DataError: what is there is not text, with file and line.
    """
    path = part.source.path
    opened = gzip.open(path, "rb") if part.source.zipped else open(path, "rb")
    try:
        with opened as file:
            if not part.source.plain:
                yield from _rows(file, part, layout.column)
            elif layout.separator is not None:
                yield from _separated(file, part, layout.separator)
            else:
                yield from _stretches(file, part)
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error})", "fetch or pack it again") from error


def is_held_out(seed: int, source: Source, place: int, share: float) -> bool:
    """Whether a unit belongs to the validation part: a matter of seed, name and place, so that it can be streamed."""
    digest = hashlib.blake2b(f"{seed}\0{source.name}\0{place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def _stretches(file: BufferedIOBase, part: Part) -> Iterator[Unit]:
    """A plain file in stretches: the j-th begins at the first place for a cut from byte j · STRETCH on.

    What is less than a whole STRETCH at the end of the file belongs to the stretch before.
    """
    j, behind = part.start // STRETCH, part.stop // STRETCH
    to_the_end = part.source.zipped or part.stop == part.source.size
    file.seek(max(0, part.start - CONTEXT))
    before = file.read(CONTEXT) if j else b""
    window = file.read(STRETCH)
    if j and len(window) < STRETCH:
        return
    at = _cut(before, window) if j else 0
    held, place = window[at:], part.start + at
    while j < behind or to_the_end:
        before = (before + window)[-CONTEXT:]
        window = file.read(STRETCH)
        ends = len(window) < STRETCH
        at = len(window) if ends else _cut(before, window)
        data = held + window[:at]
        yield Unit(j, _text(data, part, place), begins=j == 0)
        if ends:
            return
        held, place, j = window[at:], place + len(data), j + 1


def _cut(before: bytes, window: bytes) -> int:
    """Where in a window a new stretch begins, in bytes; `before` are those that precede it."""
    text = (before + window).decode("utf-8", "surrogateescape")
    start = len(before.decode("utf-8", "surrogateescape"))
    if (
        found := find_cut(text, start, len(text) - start - 4)
    ) is not None:  # the last character may be half there
        return len(text[:found].encode("utf-8", "surrogateescape")) - len(before)
    return next((i for i in range(4) if window[i] & 0xC0 != 0x80), 0)  # no space anywhere: at any character


def _rows(file: BufferedIOBase, part: Part, column: str) -> Iterator[Unit]:
    """The texts of JSON Lines."""
    for place, line in _lines(file, part.start):
        if place >= part.stop and not part.source.zipped:
            return
        if not line.strip():
            continue
        text = _text(line, part, place).rstrip("\n")
        try:
            row: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{_at(part, place)}: this is not JSON ({error})") from None
        if not isinstance(row, dict) or not isinstance(row.get(column), str):
            had = ", ".join(map(str, row)) if isinstance(row, dict) else type(row).__name__
            told = f"{_at(part, place)}: there is no text in {column!r}, only: {had[:200]}"
            raise DataError(told, "name the field that holds it: --column")
        try:
            row[column].encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(
                f"{_at(part, place)}: half a surrogate pair, so this is not Unicode text"
            ) from None
        yield Unit(place, row[column])


def _separated(file: BufferedIOBase, part: Part, separator: str) -> Iterator[Unit]:
    """The documents between lines that hold nothing but the separator.

    A document is found by the separator that precedes it; the first of a file by its beginning.
    """
    mark = separator.encode("utf-8")
    begins, held = (0, list[bytes]()) if part.start == 0 else (None, [])
    for place, line in _lines(file, part.start):
        if line.rstrip(b"\r\n") == mark:
            if begins is not None:
                yield Unit(begins, _text(b"".join(held), part, begins).removesuffix("\n"))
            if place >= part.stop and not part.source.zipped:
                return
            begins, held = place + len(line), []
        elif begins is not None:
            held.append(line)
        elif place >= part.stop:
            return
    if begins is not None:
        yield Unit(begins, _text(b"".join(held), part, begins).removesuffix("\n"))


def _lines(file: BufferedIOBase, start: int) -> Iterator[tuple[int, bytes]]:
    """(byte, line) of the lines that begin at `start` or later."""
    place = max(0, start - 1)
    file.seek(place)
    if start:
        place += len(file.readline())
    while line := file.readline():
        yield place, line
        place += len(line)


def _text(data: bytes, part: Part, place: int) -> str:
    """Bytes as text, line ends "\\n" and no byte order mark.

    Raises:
        DataError: they are no text in UTF-8; with file and line.
    """
    if place == 0 and data.startswith(UTF16_MARKS):
        raise DataError(f"{part.source.path}:1: the file is UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = _at(part, place, data[: error.start])
        told = f"{where}: 0x{data[error.start]:02X} is not UTF-8"
        raise DataError(told, "save the file as UTF-8") from None
    if "\0" in text:
        where = _at(part, place, data[: data.index(0)])
        raise DataError(f"{where}: a byte is NUL, which no text holds", "is this a file of text?")
    return (text.removeprefix("\ufeff") if place == 0 else text).replace("\r\n", "\n")


def _at(part: Part, place: int, passed: bytes = b"") -> str:
    """`file:line` of a byte, for messages: what precedes it is read again to count."""
    source = part.source
    with gzip.open(source.path, "rb") if source.zipped else open(source.path, "rb") as file:
        left, lines = place, 1 + passed.count(b"\n")
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            lines, left = lines + data.count(b"\n"), left - len(data)
    return f"{source.path}:{lines}"

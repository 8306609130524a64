"""Text of any size as a stream: plain, JSON Lines or gzip, cut into units small enough to forget.

A unit is what is held out or not as a whole: a document, or, of a plain file, which is one document however long it
is, a stretch of it. Where units begin depends on the file alone, so that any number of processes, each with a part
of the input, and a run that goes on after a kill, find the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

from glassformer.data import sources
from glassformer.data.cuts import find_cut
from glassformer.data.reading import UTF16_MARKS
from glassformer.data.sources import Part
from glassformer.errors import DataError

CONTEXT = 8
"""Bytes looked at before a place where a file might be cut."""


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


def units_of(part: Part, layout: Layout) -> Iterator[Unit]:
    """The units that begin in a part, in order; empty ones too.

    Raises:
        DataError: what is there is not text, with file and line.
    """
    with part.source.opened() as file:
        if not part.source.plain:
            yield from _rows(file, part, layout.column)
        elif layout.separator is not None:
            yield from _separated(file, part, layout.separator)
        else:
            yield from _stretches(file, part)


def _stretches(file: BufferedIOBase, part: Part) -> Iterator[Unit]:
    """A plain file in stretches: the j-th begins at the first place for a cut from byte j · STRETCH on.

    What is less than a whole STRETCH at the end of the file belongs to the stretch before.
    """
    j, behind = part.start // sources.STRETCH, part.stop // sources.STRETCH
    to_the_end = part.source.zipped or part.stop == part.source.size
    file.seek(max(0, part.start - CONTEXT))
    before = file.read(CONTEXT) if j else b""
    window = file.read(sources.STRETCH)
    if j and len(window) < sources.STRETCH:
        return
    at = _cut(before, window) if j else 0
    held, place = window[at:], part.start + at
    while j < behind or to_the_end:
        before = (before + window)[-CONTEXT:]
        window = file.read(sources.STRETCH)
        ends = len(window) < sources.STRETCH
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
    with source.opened() as file:
        left, lines = place, 1 + passed.count(b"\n")
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            lines, left = lines + data.count(b"\n"), left - len(data)
    return f"{source.path}:{lines}"

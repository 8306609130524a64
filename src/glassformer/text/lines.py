"""Lines of text as they arrive, in chunks that are answered at once."""

from __future__ import annotations

import io
import itertools
import select
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from glassformer.errors import DataError, UsageError

READ_BYTES = 1 << 16


class ArrivingLines:
    """The lines of a stream, split at line feeds only (U+2028 and similar characters belong to the text).

    Who writes a line and waits for the answer gets it: a chunk is what has arrived, and is never waited for.

    Args:
        stream: a pipe, a terminal or a file, read at its beginning; None for one that is closed.
        name: of the stream, for messages.
    """

    def __init__(self, stream: BinaryIO | None, name: str = "stdin") -> None:
        self._stream, self._name = stream, name

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.chunks(READ_BYTES))

    def chunks(self, most: int) -> Iterator[list[str]]:
        """Yield lists of lines that have arrived, of at most so many.

        Raises:
            DataError: a line is not UTF-8, after the lines before it were yielded.
            UsageError: the stream cannot be read.
        """
        rest, number, lines = list[bytes](), 0, list[str]()
        for data in self._arrived():
            first, *others = data.split(b"\n")
            rest.append(first)
            for raw in others:
                number += 1
                try:
                    lines.append(self._line(b"".join(rest), number))
                except DataError:
                    yield from _at_most(lines, most)
                    raise
                rest = [raw]
            # More may have arrived meanwhile: together they are answered faster.
            if lines and (len(lines) >= most or not self._ready(0.0)):
                yield from _at_most(lines, most)
                lines = []
        try:
            if last := b"".join(rest):
                lines.append(self._line(last, number + 1))
        finally:
            yield from _at_most(lines, most)

    def _arrived(self) -> Iterator[bytes]:
        """Yield bytes as they arrive, to the end of the stream."""
        try:
            while self._stream is not None and not self._stream.closed:
                self._ready(None)
                if not (data := self._stream.read1(READ_BYTES)):  # type: ignore[attr-defined]
                    return
                yield data
        except OSError as error:
            message = f"{self._name} cannot be read: {error.strerror or error}"
            raise UsageError(message, "give the text as arguments, or through a pipe") from error

    def _ready(self, seconds: float | None) -> bool:
        """Wait until there is something to read, at most so long; False where that cannot be known."""
        try:
            return bool(self._stream and select.select([self._stream], [], [], seconds)[0])
        except (OSError, ValueError, io.UnsupportedOperation):  # no file, or Windows, where only sockets can be asked
            return False

    def _line(self, raw: bytes, number: int) -> str:
        raw = raw.removesuffix(b"\r")
        try:
            return (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"{self._name}:{number}: expected UTF-8, found byte 0x{raw[error.start]:02x}"
            raise DataError(where, "convert the file to UTF-8 first, for instance with iconv") from error


def chunks_of(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the lines in lists of at most so many: those that have arrived, where they arrive one after another."""
    if isinstance(lines, ArrivingLines):
        yield from lines.chunks(most)
        return
    rest = iter(lines)
    while chunk := list(itertools.islice(rest, most)):
        yield chunk


def _at_most(lines: list[str], most: int) -> Iterator[list[str]]:
    return (lines[i : i + most] for i in range(0, len(lines), most))

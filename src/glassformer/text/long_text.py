"""How much of a text is read and written: what is cut, the limit of a translation; lines of text as they arrive."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from glassformer.errors import DataError

LENGTH_RATIO, LENGTH_MARGIN = 2, 20
"""A translation has at most LENGTH_RATIO · source + LENGTH_MARGIN tokens: a longer one is a loop."""


def length_limit(n_source: int, max_len: int, max_new_tokens: int) -> int:
    """Return the maximum tokens, EOS included, of a translation of `n_source` tokens."""
    return max(1, min(max_len, max_new_tokens, LENGTH_RATIO * n_source + LENGTH_MARGIN))


def window_start(n_tokens: int, max_len: int) -> int:
    """Return the index of the first of `n_tokens` tokens that the model still sees when it predicts the next one.

    Up to max_len that is 0. Beyond, the window jumps ahead by half of max_len and is read again: the model sees between
    half of max_len and max_len tokens, and most tokens cost one cached step. (Moving it by one would shift every
    position, and invalidate the cache, at each token.) It depends only on the number of tokens, never on the batch.
    """
    jump = max_len - max_len // 2
    return jump * -(-max(0, n_tokens - max_len) // jump)


def truncate(ids: list[Any], max_len: int, keep: str) -> list[Any]:
    """Return the first `max_len` ids, the last, or half of each (the odd one from the head)."""
    if len(ids) <= max_len:
        return ids
    n_tail = {"head": 0, "tail": max_len, "head+tail": max_len // 2}[keep]
    return ids[: max_len - n_tail] + ids[len(ids) - n_tail :]


class CutText(NamedTuple):
    """What is kept of a text, with surface forms, and what an answer says of it: that there was more."""

    ids: list[int]
    surfaces: list[str]
    mark: dict[str, bool | int]


READ_BYTES = 1 << 16


class ArrivingLines:
    """The lines of a stream, split at line feeds only (U+2028 and similar characters belong to the text).

    Who writes a line and waits for the answer gets it: a chunk is what has arrived, and is never waited for. `stream`
    is a pipe, a terminal or a file, read at its beginning; None for one that is closed.
    """

    def __init__(self, stream: BinaryIO | None, name: str = "stdin") -> None:
        self._stream, self._name = stream, name

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.chunks(READ_BYTES))

    def chunks(self, most: int) -> Iterator[list[str]]:
        """Yield lists of lines that have arrived, of at most so many.

        Raises:
            DataError: a line is not UTF-8, after the lines before it were yielded.
        """
        rest, number = b"", 0
        while self._stream and not self._stream.closed:
            data: bytes = self._stream.read1(READ_BYTES)  # type: ignore[attr-defined]
            *lines, rest = (rest + data).split(b"\n")
            if not data:  # the end: the last line may have no line feed
                lines = [rest] if rest else []
            texts = list[str]()
            for line in lines:
                number += 1
                line = line.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
                try:
                    texts.append(line.decode("utf-8"))
                except UnicodeDecodeError as error:
                    if texts:
                        yield texts
                    where = f"{self._name}:{number}: expected UTF-8, found byte 0x{line[error.start]:02x}"
                    raise DataError(where, "convert the file to UTF-8 first, for instance with iconv") from error
                if len(texts) == most:
                    yield texts
                    texts = []
            if texts:
                yield texts
            if not data:
                return


def chunks_of(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the lines in lists of at most so many: those that have arrived, where they arrive one after another."""
    if isinstance(lines, ArrivingLines):
        yield from lines.chunks(most)
        return
    rest = iter(lines)
    while chunk := list(itertools.islice(rest, most)):
        yield chunk

"""Fields of messages of protocol buffers: files of ONNX and of SentencePiece consist of them."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _BYTES = 0, 2
_WIDTHS = {1: 8, 5: 4}
"""Bytes of a number of a fixed width, by its type."""
_MOST_DIGITS = 10
"""Bytes of a number of 64 bits, seven of which are in each byte."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field: a whole number, or bytes: a text, a message or a number of fixed width.

    Raises:
        ValueError, IndexError: it is no such message.
    """
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _number(data, at)
        elif kind == _BYTES or kind in _WIDTHS:
            size, at = _number(data, at) if kind == _BYTES else (_WIDTHS[kind], at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"a field of the kind {kind}")
        if at > len(data):
            raise ValueError("it ends within a field")
        yield key >> 3, value


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """Return a whole number of seven bits in each byte, the lowest first, and where it ends."""
    value = 0
    for i in range(_MOST_DIGITS):
        value |= (data[at + i] & 127) << (7 * i)
        if data[at + i] < 128:
            return value, at + i + 1
    raise ValueError("a number without an end")

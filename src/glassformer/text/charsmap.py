"""Check the table of characters of SentencePiece (`Precompiled`) before the library follows it.

    4 bytes: the size of the trie     the trie: units of 4 bytes     texts, each ended by a zero byte

The trie is a double array (Aoe 1989; https://github.com/s-yata/darts-clone): from a node, the byte c of a text leads to
the unit at `node ^ c`, if that has the label c. The library does not compare places with the size of the array, and
would copy a text of any length for each character. So each place that a text can lead to is visited here, once.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from glassformer.errors import CheckpointError

MOST_BYTES = 4 << 20
"""Largest table; that of XLM-RoBERTa has 240,000 bytes."""
MOST_CHARACTERS = 32
"""Longest text that takes the place of a character; the longest of Unicode's NFKC has 18 characters."""
_BYTES = np.arange(1, 256, dtype=np.int64)


def check_charsmap(encoded: Any, where: object) -> None:
    """Refuse a table that leads out of itself, or makes a text much longer; `encoded` is in base64.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        data = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _damaged(where, "it is not in base64") from error
    size = int.from_bytes(data[:4], "little")
    if len(data) > MOST_BYTES or size < 4 or size % 4 or size > len(data) - 4:
        raise _damaged(where, "its size is wrong")
    units = np.frombuffer(data, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    texts = data[4 + size :]
    try:
        texts.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(where, "its texts are not UTF-8") from error
    starts = _values(units, where)
    for start in starts:
        end = texts.find(b"\0", start)
        is_text = start < len(texts) and end >= 0 and (texts[start] & 0xC0) != 0x80
        if not is_text or len(texts[start:end].decode("utf-8")) > MOST_CHARACTERS:
            raise _damaged(where, "it replaces a character by no text, or a very long one")


def _values(units: np.ndarray, where: object) -> set[int]:
    """Return the values of all leaves that a text can lead to."""
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels, has_leaf = units & ((1 << 31) | 0xFF), (units >> 8) & 1
    values, seen, waiting = set[int](), set[int](), [int(offsets[0])]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if (node | 0xFF) >= len(units):
            raise _damaged(where, "it leads out of itself")
        places = node ^ _BYTES
        for place in places[labels[places] == _BYTES].tolist():
            following = place ^ int(offsets[place])
            if following >= len(units):
                raise _damaged(where, "it leads out of itself")
            if has_leaf[place]:
                values.add(int(units[following]) & ((1 << 31) - 1))
            waiting.append(following)
    return values


def _damaged(where: object, why: str) -> CheckpointError:
    return CheckpointError(f"{where}: its table of characters (Precompiled) is damaged: {why}")

"""Where a long text can be cut so that its parts, tokenized apart, give the ids of the whole.

Characters stand alone, and the splitting rules of words and of byte-level BPE never join a single newline to the text
on either side of it, nor a word to the one before its space. Merged characters (`bpe`) know no such place.
"""

from __future__ import annotations

import re

_LINE_BEGINS = re.compile(r"(?<=\S\n)(?=\S)|(?<=\S\r\n)(?=\S)")
_WORD_ENDS = re.compile(r"(?<=\w)(?= \w)")  # the space goes with the word behind it


def find_split(text: str, start: int, reach: int) -> int | None:
    """Return the first start of a line within `reach` from `start` on, else the first end of a word there.

    None without either.
    """
    for pattern in (_LINE_BEGINS, _WORD_ENDS):
        if found := pattern.search(text, start, start + reach):
            return found.start()
    return None


def split_text(text: str, size: int) -> list[str]:
    """Split a text into parts of about `size` characters; of more where it cannot be split."""
    parts, begins, at = list[str](), 0, size
    while at < len(text):
        if (found := find_split(text, at, size)) is None:
            at += size
        else:
            parts.append(text[begins:found])
            begins, at = found, found + size
    return [*parts, text[begins:]]

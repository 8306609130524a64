"""Running text cut into words, for models that tag each word, and the text that such a model reads.

It reads words joined by single spaces, in training and afterwards, so that the words of a file and those of running
text reach it in one form. No torch is imported here.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

Span = tuple[int, int]
_WORD = re.compile(r"\d+(?:[.,:/]\d+)+|\w+(?:[-'’.]\w+)*|([^\w\s])\1*")
"""A number with marks inside; letters and digits, also parted by a hyphen, an apostrophe or a dot ("state-of-the-art",
"don't"); equal marks in a row."""


def word_spans(text: str) -> list[Span]:
    """Return the characters text[start:end] of each word; white space belongs to none."""
    return [match.span() for match in _WORD.finditer(text if text.isascii() else _with_marks_as_letters(text))]


def _with_marks_as_letters(text: str) -> str:
    """Return a text of equal length in which combining marks and joiners are as the character before them."""
    characters: list[str] = []
    for character in text:
        joins = unicodedata.category(character)[0] == "M" or character in "\u200c\u200d"
        characters.append(characters[-1] if joins and characters and not characters[-1].isspace() else character)
    return "".join(characters)


class ReadText(NamedTuple):
    """A text as a model reads it, and its words.

    Attributes:
        text: the words, joined by single spaces.
        words: the words.
        spans: where each stands in the text that was given.
    """

    text: str
    words: list[str]
    spans: list[Span]

    @property
    def starts(self) -> list[int]:
        """Return where each word begins in the joined text."""
        ends = accumulate(len(word) + 1 for word in self.words)
        return [end - len(word) - 1 for end, word in zip(ends, self.words, strict=True)]

    def given(self, spans: Sequence[Span]) -> list[Span | None]:
        """Return spans of the joined text as those of the text that was given; None for those of no character."""
        starts, found = self.starts, list[Span | None]()
        for start, end in spans:
            if end <= start or not starts:
                found.append(None)
                continue
            first, last = bisect_right(starts, start) - 1, bisect_right(starts, end - 1) - 1
            begin, stop = self.spans[first][0] + start - starts[first], self.spans[last][0] + end - starts[last]
            found.append((min(begin, self.spans[first][1]), min(stop, self.spans[last][1])))
        return found


def read_running(text: str) -> ReadText:
    """Return running text as a model reads it."""
    spans = word_spans(text)
    words = [text[start:end] for start, end in spans]
    return ReadText(" ".join(words), words, spans)


def first_tokens(starts: Sequence[int], words: Sequence[str], offsets: Sequence[Span]) -> list[int]:
    """Return for each word of a joined text the index of its first token; -1 for a word without a token.

    `starts` are the words' places and `offsets` the tokens'; a token may begin with the space before its word.
    """
    first = [-1] * len(words)
    ends = [start + len(word) for start, word in zip(starts, words, strict=True)]
    for token, (start, end) in enumerate(offsets):
        word = bisect_right(ends, start)  # the first that ends behind the token's start
        if end > start and word < len(words) and starts[word] < end and first[word] < 0:
            first[word] = token
    return first

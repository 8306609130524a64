"""Running text cut into words, for models that tag each word, and the text that such a model reads.

It reads words joined by single spaces, in training and afterwards, so that the words of a file and those of running
text reach it in one form. No torch is imported here.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from glassformer.text.tokenizer import Span, Tokenizer

ENCODED_TOGETHER = 1024
"""Texts that are encoded at a time: the characters of tokens take far more memory than ids."""
NO_TOKEN = -1
"""The place of a word that has no token, or whose first one is cut off."""
_WORD = re.compile(r"\w(?:\w|[-'’.](?=\w)|(?<=\d)[,:/](?=\d))*|([^\w\s])\1*")
"""Letters and digits, also joined by a mark ("state-of-the-art", "don't", "1,5"), or equal marks in a row."""


def word_spans(text: str) -> list[Span]:
    """Return the characters text[start:end] of each word: letters and digits, also joined by marks, or marks alone."""
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
        source: the text that was given.
    """

    text: str
    words: list[str]
    spans: list[Span]
    source: str

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
    return ReadText(" ".join(words), words, spans, text)


def first_tokens(starts: Sequence[int], words: Sequence[str], offsets: Sequence[Span]) -> list[int]:
    """Return for each word of a joined text the index of its first token; NO_TOKEN for a word without one.

    `starts` are the words' places and `offsets` the tokens'; a token may begin with the space before its word.
    """
    first = [NO_TOKEN] * len(words)
    ends = [start + len(word) for start, word in zip(starts, words, strict=True)]
    for token, (start, end) in enumerate(offsets):
        word = bisect_right(ends, start)  # the first that ends after the token's start
        if end > start and word < len(words) and starts[word] < end and first[word] < 0:
            first[word] = token
    return first


class EncodedWords(NamedTuple):
    """The tokens of a text that is read word by word.

    Attributes:
        ids: all of them, without what belongs around a text.
        surfaces: the surface forms of those that are kept, where the tokenizer has n-grams.
        places: the place of each word's first token in what the model reads, or NO_TOKEN.
    """

    ids: list[int]
    surfaces: list[str]
    places: list[int]


def encoded_words(tokenizer: Tokenizer, texts: Iterable[ReadText], max_len: int) -> Iterator[EncodedWords]:
    """Yield the tokens of each text, of which a model reads those that fit into `max_len` with what is around them."""
    rest, room, before = iter(texts), tokenizer.room(max_len), len(tokenizer.prefix)
    while several := list(islice(rest, ENCODED_TOGETHER)):
        encodings = tokenizer.encode_with_offsets([read.text for read in several])
        for read, (ids, offsets) in zip(several, encodings, strict=True):
            surfaces = tokenizer.surfaces(read.text, ids[:room], offsets[:room]) if tokenizer.ngrams else []
            first = first_tokens(read.starts, read.words, offsets)
            places = [before + place if 0 <= place < room else NO_TOKEN for place in first]
            yield EncodedWords(ids, surfaces, places)

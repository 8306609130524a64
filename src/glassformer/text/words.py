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


OUTSIDE = "O"
_OF_SPAN = re.compile(r"[BIESLU]-.+")


class TagSpan(NamedTuple):
    """A span of words, from `start` to before `end`."""

    start: int
    end: int
    label: str


def marks_span(tag: str) -> bool:
    """Return whether a tag is of a scheme of spans, such as B-PER; O is of both kinds."""
    return _OF_SPAN.fullmatch(tag) is not None


def are_plain(names: Iterable[str]) -> bool:
    """Return whether tags stand for themselves, as parts of speech do, and mark no spans."""
    return not any(map(marks_span, names))


def spans_of(tags: Sequence[str]) -> list[TagSpan]:
    """Return the spans of a sentence as conlleval and seqeval's default mode count them.

    I-X after O or after another label begins a span; one ends before each word that does not continue it.
    """
    spans: list[TagSpan] = []
    start, label = 0, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, its = tag.partition("-") if marks_span(tag) else (OUTSIDE, "", "")
        if label and (prefix != "I" or its != label):
            spans.append(TagSpan(start, i, label))
            label = ""
        if its and not label:
            start, label = i, its
    return spans


def tag_names(tags: Iterable[str]) -> list[str]:
    """Return the tags that a model has which was trained on these: O, and of each label B-X and I-X; sorted.

    Plain tags are those that occur. The first is that of words that are not read: O, where there is one.
    """
    found = set(tags)
    if are_plain(found):
        return sorted(found, key=lambda tag: (tag != OUTSIDE, tag))
    labels = sorted({tag[2:] for tag in found if marks_span(tag)})
    return [OUTSIDE, *(f"{prefix}-{label}" for label in labels for prefix in "BI")]

"""The tokens of a text as a person sees them: pieces, the words they belong to, the characters they stand for.

Which text is cut where, and what is put around it, is decided in `preparing/`; here a list of ids and the
characters they came from become a `Stream`.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from glassformer.text.tokenizer import Tokenizer

Span: TypeAlias = tuple[int, int]
StreamName: TypeAlias = Literal["text", "source", "target"]
"""A classifier and a language model have "text" alone."""

_SINGLE = (
    (0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF),
)  # fmt: skip
"""Kana and Han characters, each a word here, since no spaces part the words of those scripts."""


@dataclass(frozen=True)
class Stream:
    """One stream of tokens."""

    name: StreamName
    ids: list[int]
    pieces: list[str]
    """As a person would write them: "▁" for a space, "refunds [UNK]" where an unknown word is spelled."""
    special: list[bool]
    """[BOS], [EOS], [PAD], [MASK]."""
    unknown: list[bool]
    padding: list[bool]
    words: list[int]
    """The word each token belongs to, from 0; -1 for special tokens."""
    word_texts: list[str]
    """The words as written, for clicking and erasing."""
    spans: list[Span | None]
    """Characters of `text` each token stands for; null for special tokens."""
    text: str
    n_given: int
    """How many of the tokens are the prompt, or a forced prefix; the model wrote the rest."""
    ngrams: list[list[str]] | None = None
    """The n-grams that spell each token, "<ref" or "0xE2" for a byte; null: the model reads none."""
    ngram_ids: list[list[int]] | None = None
    """Their numbers, 0 where a token has fewer than others."""
    bigrams: list[str] | None = None
    """The pair of words that each token ends, "" where it has no row; null: the model reads no pairs."""
    bigram_ids: list[int] | None = None
    """The rows of the pairs, 0 for none."""

    def __len__(self) -> int:
        return len(self.ids)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"spans": [None if span is None else list(span) for span in self.spans]}


def make_stream(
    tokenizer: Tokenizer,
    name: StreamName,
    ids: Sequence[int],
    spans: Sequence[Span | None],
    text: str,
    *,
    n_given: int | None = None,
    n_pad: int = 0,
) -> Stream:
    """A stream of ids and of the characters text[start:end] they stand for, padding appended.

    Args:
        tokenizer: of the ids.
        name: text, source or target.
        ids, spans: the tokens, [BOS] and [EOS] included; a span is None where there are no characters.
        text: what the spans count in.
        n_given: tokens that the model did not write; all when absent.
        n_pad: [PAD] tokens to append.
    """
    ids = [*ids, *[tokenizer.pad_id] * n_pad]
    special_ids = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id}
    special = [i in special_ids for i in ids]
    unknown = [i == tokenizer.unk_id for i in ids]
    padding = [place >= len(ids) - n_pad for place in range(len(ids))]
    spans = [None if s else span for s, span in zip(special, [*spans, *[None] * n_pad], strict=True)]
    words, word_texts = group_words(text, spans, unknown)
    n_given = len(ids) if n_given is None else n_given
    return Stream(
        name, ids, tokenizer.pieces(ids), special, unknown, padding, words, word_texts, spans, text, n_given
    )


def group_words(
    text: str, spans: Sequence[Span | None], unknown: Sequence[bool]
) -> tuple[list[int], list[str]]:
    """The word each token belongs to, and the words.

    A word is what a person would click on: letters and digits in a row (an apostrophe may be inside), any
    other mark, a line break. A token that reaches over several makes them one; a space belongs to the word
    after it. Tokens without a span get -1, except unknown ones, which stand for something.
    """
    units = _units(text)
    starts, ends = [start for start, _ in units], [end for _, end in units]
    words: list[int | None] = []
    reach: list[list[int]] = []  # first and last unit of each word; empty for an unknown token
    for span, odd in zip(spans, unknown, strict=True):
        if span is None:
            words.append(len(reach) if odd else -1)
            reach += [[]] if odd else []
            continue
        first, last = bisect_right(ends, span[0]), bisect_left(starts, span[1]) - 1
        if first > last:  # spaces alone, or nothing
            words.append(len(reach) if odd else None)
            reach += [[]] if odd else []
            continue
        if reach and reach[-1] and first <= reach[-1][1]:
            reach[-1][1] = max(last, reach[-1][1])
        else:
            reach.append([first, last])
        words.append(len(reach) - 1)
    if not reach and any(word is None for word in words):
        reach.append([])
    following = len(reach) - 1  # what has no word after it belongs to the last
    for place in range(len(words) - 1, -1, -1):
        word = words[place]
        if word is None:
            words[place] = following
        elif word >= 0:
            following = word
    texts = [text[starts[r[0]] : ends[r[1]]].replace("\n", "\\n") if r else "" for r in reach]
    for place, word in enumerate(words):
        if word is not None and word >= 0 and not texts[word]:
            texts[word] = "[UNK]" if unknown[place] else "▁"
    return [-1 if word is None else word for word in words], texts


def written_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Span | None]]:
    """The text that ids decode to, and the characters of it that each wrote.

    A token's characters are those by which the text grows when the token is decoded too. Tokens that are
    parts of one character share it.
    """
    text = tokenizer.decode(ids)
    ends = [0]
    for n in range(1, len(ids) + 1):
        ends.append(max(ends[-1], _common(tokenizer.decode(ids[:n]), text)))
    spans: list[Span | None] = []
    for place, token in enumerate(ids):
        start, end = ends[place], ends[place + 1]
        if end == start and token > tokenizer.mask_id:
            end = next((later for later in ends[place + 1 :] if later > start), start)
        while tokenizer.kind == "word" and start < end and text[start].isspace():
            start += 1
        spans.append((start, end))
    return text, spans


def _common(a: str, b: str) -> int:
    """Length of the longest common beginning."""
    if b.startswith(a):
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _units(text: str) -> list[Span]:
    """Words, single marks and line breaks of a text, as spans in order; spaces are left out."""
    units: list[list[int]] = []
    before = "space"
    for i, character in enumerate(text):
        kind = _kind(character)
        if character in "'’" and before == "word" and text[i + 1 : i + 2].isalnum():
            kind = "word"
        joined = before != "space" and (kind == "joiner" or text[i - 1] == "\u200d")
        if joined or (kind == before and kind in ("word", "line")):
            units[-1][1] = i + 1
        elif kind != "space":
            units.append([i, i + 1])
        if kind == "joiner":
            kind = before if before != "space" else "mark"
        before = kind
    return [(start, end) for start, end in units]


def _kind(character: str) -> str:
    """word, joiner (accents, and what joins two emoji), single, mark, line or space."""
    code = ord(character)
    if character == "\n":
        return "line"
    if character.isspace():
        return "space"
    if code >= 0x3040 and any(low <= code <= high for low, high in _SINGLE) and character.isalpha():
        return "single"
    if character.isalnum() or character == "_":
        return "word"
    category = unicodedata.category(character)
    return "joiner" if category[0] == "M" or category == "Cf" or 0x1F3FB <= code <= 0x1F3FF else "mark"

"""Describe the tokens of a text: their strings, the words they belong to, the characters they stand for.

`inputs.py` tokenizes and truncates; here a list of ids and the characters they came from become a `Stream`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from os.path import commonprefix
from typing import Literal, TypeAlias

import torch

from glassformer.nn.ngram_embeddings import BigramEmbedding, HashedNgramEmbedding, NgramBatch
from glassformer.text.ngrams import FIRST
from glassformer.text.tokenizer import Tokenizer


def add_ngrams(t: Tokenizer, stream: Stream, surfaces: Sequence[str]) -> tuple[Stream, NgramBatch]:
    """Return a stream with its character n-grams and its unknown words as written, and the n-grams of each token.

    `surfaces` are the surface forms of the tokens, "" for one without n-grams.
    """
    assert t.ngrams is not None
    ids = [t.ngrams.lookup(surface) if surface else [] for surface in surfaces]
    known = t.ngrams.ngrams
    names = [[known[id - FIRST] if id >= FIRST else f"0x{id - 1:02X}" for id in row] for row in ids]
    width = max(1, *map(len, ids))
    padded = [row + [0] * (width - len(row)) for row in ids]
    batch = NgramBatch(torch.arange(1, len(stream) + 1)[None], torch.tensor([[0] * width, *padded]))
    tokens = zip(stream.pieces, stream.unknown, stream.spans, strict=True)
    pieces = [f"{stream.text[slice(*span)]} {p}" if unknown and span else p for p, unknown, span in tokens]
    return replace(stream, pieces=pieces, ngrams=names, ngram_ids=padded), batch


def add_bigrams(stream: Stream, bigrams: BigramEmbedding) -> Stream:
    """Return a stream with the word bigram that ends at each of its tokens, if the model has a row for it."""
    ids: list[int] = bigrams.lookup_ids(torch.tensor([stream.ids], device=bigrams.weight.device))[0].tolist()
    pairs = zip(ids, ["", *stream.pieces], stream.pieces, strict=False)
    return replace(stream, bigrams=[f"{a} {b}" if id else "" for id, a, b in pairs], bigram_ids=ids)


def add_hashed_ngrams(stream: Stream, ngrams: HashedNgramEmbedding) -> Stream:
    """Return a stream with the token n-grams that end at each of its tokens, shortest first."""
    token_ids = torch.tensor([stream.ids], device=ngrams.weight.device)
    ids: list[list[int]] = ngrams.lookup_ids(token_ids, len(stream))[0].tolist()
    names = [
        ["".join(stream.pieces[end - n : end]) for n, id in enumerate(row, 2) if id] for end, row in enumerate(ids, 1)
    ]
    return replace(stream, ngrams=names, ngram_ids=ids)


Span: TypeAlias = tuple[int, int]
StreamName: TypeAlias = Literal["text", "source", "target"]
"""A classifier and a language model have "text" alone."""

_SINGLE = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""Kana and Han characters, each counted as a word, since these scripts have no spaces between words."""


@dataclass(frozen=True)
class Stream:
    """One stream of tokens."""

    name: StreamName
    ids: list[int]
    pieces: list[str]
    """The tokens in readable form: "▁" for a space, "refunds [UNK]" for an unknown word read by its n-grams."""
    special: list[bool]
    """True for [BOS], [EOS], [PAD] and [MASK]."""
    unknown: list[bool]
    padding: list[bool]
    words: list[int]
    """Index of the word each token belongs to; -1 for special tokens."""
    word_texts: list[str]
    """The words as written in the text."""
    spans: list[Span | None]
    """Characters (start, end) of `text` each token stands for; null for special tokens."""
    text: str
    n_given: int
    """Number of tokens of the prompt or the forced prefix; the model generated the rest."""
    ngrams: list[list[str]] | None = None
    """The n-grams of each token, "<ref" or "0xE2" for a byte; null: the model reads none."""
    ngram_ids: list[list[int]] | None = None
    """Ids of the n-grams, padded with 0."""
    bigrams: list[str] | None = None
    """The word bigram that ends at each token, "" where the table has no row; null: the model reads none."""
    bigram_ids: list[int] | None = None
    """Rows of the bigrams in the table, 0 for none."""

    def __len__(self) -> int:
        return len(self.ids)


def words_read(stream: Stream, n: int) -> list[str]:
    """Return the words of a stream as far as its first n tokens write them; "" for a word that begins later."""
    texts: list[str] = []
    for number, text in enumerate(stream.word_texts):
        tokens = [i for i, word in enumerate(stream.words) if word == number]
        read = [i for i in tokens if i < n]
        spans = [span for span in (stream.spans[i] for i in read) if span is not None]
        if len(read) == len(tokens):
            texts.append(text)
        elif spans:
            part = stream.text[min(a for a, _ in spans) : max(b for _, b in spans)]
            texts.append(part.strip().replace("\n", "\\n") or "▁")
        else:
            texts.append("".join(stream.pieces[i] for i in read))
    return texts


def make_stream(
    tokenizer: Tokenizer,
    name: StreamName,
    ids: Sequence[int],
    spans: Sequence[Span | None],
    text: str,
    *,
    n_given: int | None = None,
) -> Stream:
    """Return a stream of ids and the characters they stand for; of none one token of padding, as in prediction.

    Args:
        tokenizer: the tokenizer of the ids.
        name: text, source or target.
        ids: the tokens, with [BOS] and [EOS].
        spans: for each token its characters text[start:end]; None where it has none, as the last ones that are left
            out.
        text: the text.
        n_given: the number of tokens that the model did not generate; None for all.
    """
    padding, ids = [not ids] * max(1, len(ids)), [*ids] or [tokenizer.pad_id]
    special_ids = tokenizer.special_ids - {tokenizer.unk_id}
    special = [i in special_ids for i in ids]
    unknown = [i == tokenizer.unk_id for i in ids]
    spans = [None if s else span for s, span in zip_longest(special, spans)]
    words, word_texts = group_words(text, spans, unknown)
    n_given = len(ids) if n_given is None else n_given
    return Stream(name, ids, tokenizer.tokens(ids), special, unknown, padding, words, word_texts, spans, text, n_given)


def group_words(text: str, spans: Sequence[Span | None], unknown: Sequence[bool]) -> tuple[list[int], list[str]]:
    """Return the index of the word each token belongs to, and the words.

    A word is a run of letters and digits (an apostrophe may be inside), any other mark, or a line break. A token that
    covers several merges them; a space belongs to the word after it. Tokens without a span get -1, except unknown ones.
    """
    # The spans of words, single marks and line breaks in order, without spaces.
    units = [match.span() for match in _UNIT.finditer("".join(map(_character_kind, text)))]
    starts, ends = [start for start, _ in units], [end for _, end in units]
    words: list[int | None] = []
    # First and last unit of each word; empty for an unknown token.
    reach: list[list[int]] = []
    for span, is_unknown in zip(spans, unknown, strict=True):
        first, last = (1, 0) if span is None else (bisect_right(ends, span[0]), bisect_left(starts, span[1]) - 1)
        if first > last:  # only spaces, or nothing
            words.append(len(reach) if is_unknown else -1 if span is None else None)
            reach += [[]] if is_unknown else []
            continue
        if reach and reach[-1] and first <= reach[-1][1]:
            reach[-1][1] = max(last, reach[-1][1])
        else:
            reach.append([first, last])
        words.append(len(reach) - 1)
    if not reach and None in words:
        reach.append([])
    texts = [text[starts[r[0]] : ends[r[1]]].replace("\n", "\\n") if r else "" for r in reach]
    # A space belongs to the next word, or to the last one where there is none.
    numbers, following = list[int](), len(reach) - 1
    for word, is_unknown in zip(reversed(words), reversed(unknown), strict=True):
        following = following if word is None or word < 0 else word
        numbers.append(-1 if word == -1 else following)
        if word != -1 and not reach[following]:
            texts[following] = "[UNK]" if is_unknown else "▁"
    return numbers[::-1], texts


def decoded_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Span]]:
    """Return the text that ids decode to, and the characters of each token in it.

    The characters of a token are those that decoding it adds. Tokens that are parts of one character share it.
    """
    text = tokenizer.decode(ids)
    ends = [0]
    for n in range(1, len(ids) + 1):
        same = commonprefix([tokenizer.decode(ids[:n]), text])  # noqa: RUF071 - by characters
        ends.append(max(ends[-1], len(same)))
    spans: list[Span] = []
    for index, token in enumerate(ids):
        start, end = ends[index], ends[index + 1]
        if end == start and token not in tokenizer.special_ids:
            end = next((later for later in ends[index + 1 :] if later > start), start)
        while tokenizer.kind in ("word", "wordpiece") and start < end and text[start].isspace():
            start += 1
        spans.append((start, end))
    return text, spans


_UNIT = re.compile(r"w(?:[wjz]|(?<=z).|'(?=[ws]))*|l(?:[ljz]|(?<=z).)*|[^ ](?:[jz]|(?<=z).)*")
"""A word with apostrophes inside, line breaks, or another character alone, with the joiners (j) after each; and what
follows a zero-width joiner (z). Each letter is the kind of one character."""


def _character_kind(character: str) -> str:
    """Return w (of a word), j and z (joiners), s (a word alone), ' (apostrophe), m (a mark), l (a line) or space."""
    code, category = ord(character), unicodedata.category(character)
    if character == "\n":
        return "l"
    if character.isspace():
        return " "
    if code >= 0x3040 and any(low <= code <= high for low, high in _SINGLE) and character.isalpha():
        return "s"
    if character.isalnum() or character == "_":
        return "w"
    if category[0] == "M" or category == "Cf" or 0x1F3FB <= code <= 0x1F3FF:
        return "z" if character == "\u200d" else "j"
    return "'" if character in "'’" else "m"

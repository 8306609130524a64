"""What a model reads beside its tokens, for a person: how words are spelled, which pairs and n-grams tokens make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from glassformer.explain.streams import Stream
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.hashed_ngrams import HashedNgramEmbedding
from glassformer.models.spelling import Spelling
from glassformer.text.spelling import FIRST
from glassformer.text.tokenizer import Tokenizer


def spelled(t: Tokenizer, stream: Stream, kept: Sequence[int]) -> tuple[Stream, Spelling]:
    """A stream with its n-grams, and with unknown words as they were written; and its spelling, a batch of one.

    Args:
        t: a tokenizer with n-grams.
        stream: of a text. kept: places of its tokens in the whole text; padding may follow them.
    """
    assert t.spelling is not None
    [(_, words)] = t.encode_spelled([stream.text])
    ids = [t.spelling.numbers(words[place]) for place in kept]
    names = [[_name(number, t.spelling.ngrams) for number in row] for row in ids]
    n_pad, width = len(stream) - len(ids), max([1, *map(len, ids)])
    padded = [row + [0] * (width - len(row)) for row in [*ids, *[[]] * n_pad]]
    spelling = Spelling(torch.arange(1, len(stream) + 1)[None], torch.tensor([[0] * width, *padded]))
    told = zip(stream.pieces, stream.unknown, stream.spans, strict=True)
    pieces = [f"{stream.text[slice(*span)]} {p}" if odd and span else p for p, odd, span in told]
    return replace(stream, pieces=pieces, ngrams=names + [[]] * n_pad, ngram_ids=padded), spelling


def paired(stream: Stream, bigrams: BigramEmbedding) -> Stream:
    """A stream with the pair of words that each of its tokens ends, where that one has a row.

    Args:
        stream: of a text.
        bigrams: the model's table.
    """
    numbers: list[int] = bigrams.numbers(torch.tensor([stream.ids], device=bigrams.weight.device))[0].tolist()
    before = ["", *stream.pieces]
    names = [
        f"{a} {b}" if number else "" for number, a, b in zip(numbers, before, stream.pieces, strict=False)
    ]
    return replace(stream, bigrams=names, bigram_ids=numbers)


def with_ngrams(stream: Stream, ngrams: HashedNgramEmbedding) -> Stream:
    """A stream with the n-grams of tokens that each of its tokens ends, shortest first.

    Args:
        stream: of a text.
        ngrams: the model's table.
    """
    ids = torch.tensor([stream.ids], device=ngrams.weight.device)
    numbers: list[list[int]] = ngrams.numbers(ids, len(stream))[0].tolist()
    names = [
        ["".join(stream.pieces[end - n : end]) for n, number in enumerate(row, 2) if number]
        for end, row in enumerate(numbers, 1)
    ]
    return replace(stream, ngrams=names, ngram_ids=numbers)


def _name(number: int, ngrams: Sequence[str]) -> str:
    """An n-gram as it is written, a byte as "0xE2"."""
    return ngrams[number - FIRST] if number >= FIRST else f"0x{number - 1:02X}"

"""Add to a stream what the model reads beside its tokens: character n-grams, word bigrams, hashed token n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from glassformer.explain.streams import Stream
from glassformer.nn.ngram_embeddings import BigramEmbedding, HashedNgramEmbedding, NgramBatch
from glassformer.text.ngrams import FIRST
from glassformer.text.tokenizer import Tokenizer


def add_ngrams(t: Tokenizer, stream: Stream, surfaces: Sequence[str]) -> tuple[Stream, NgramBatch]:
    """Return a stream with its character n-grams and its unknown words as written, and the n-grams of each token.

    `surfaces` are the surface forms of the tokens, "" for one without n-grams; padding may follow them.
    """
    assert t.ngrams is not None
    ids = [t.ngrams.lookup(surface) if surface else [] for surface in surfaces]
    names = [[_ngram_text(id, t.ngrams.ngrams) for id in row] for row in ids]
    n_pad, width = len(stream) - len(ids), max([1, *map(len, ids)])
    padded = [row + [0] * (width - len(row)) for row in [*ids, *[[]] * n_pad]]
    batch = NgramBatch(torch.arange(1, len(stream) + 1)[None], torch.tensor([[0] * width, *padded]))
    tokens = zip(stream.pieces, stream.unknown, stream.spans, strict=True)
    pieces = [f"{stream.text[slice(*span)]} {p}" if unknown and span else p for p, unknown, span in tokens]
    return replace(stream, pieces=pieces, ngrams=names + [[]] * n_pad, ngram_ids=padded), batch


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


def _ngram_text(id: int, ngrams: Sequence[str]) -> str:
    """Return an n-gram as written, a byte as "0xE2"."""
    return ngrams[id - FIRST] if id >= FIRST else f"0x{id - 1:02X}"

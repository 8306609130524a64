"""Which tokens a masked language model must guess, and what it sees in their place (Devlin et al. 2019, 3.1)."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.text.ngrams import AHEAD

SHARE = 0.15
"""Of the tokens of a text, how many are to be guessed."""
HIDDEN, EXCHANGED = 0.8, 0.1
"""Of those, how many read [MASK] and how many another token; the rest is left as it is, so that the model cannot tell
which of the tokens it sees are true."""


def mask_tokens(
    ids: Int[Tensor, "B S"], ngram_batch: NgramBatch | None, mask_id: int, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "B S"], NgramBatch | None, Int[Tensor, "B S"]]:
    """Mask tokens of padded ids (B, S) and their n-grams.

    Return both, and labels: the original token where it is predicted, else IGNORE_INDEX.

    The share is of every text's tokens, rounded, and at least one token; special tokens, whose ids come first, are
    never chosen; where a batch has no others, nothing is masked. The choice is new at each call (Liu et al. 2019, 4.1),
    drawn from `generator` or torch's own, which checkpoints keep. A token is replaced by one from anywhere in the
    batch, with its n-grams.
    """
    eligible = ids > mask_id
    n_chosen = (SHARE * eligible.sum(dim=1)).round().clamp(min=1)
    order = torch.rand(ids.shape, generator=generator).masked_fill(~eligible, 2.0)
    chosen = eligible & (order.argsort(dim=1).argsort(dim=1) < n_chosen[:, None])
    fate = torch.rand(ids.shape, generator=generator)
    hidden, exchanged = chosen & (fate < HIDDEN), chosen & (fate >= 1 - EXCHANGED)
    places = eligible.flatten().nonzero()[:, 0]
    if not len(places):
        return ids, ngram_batch, torch.full_like(ids, IGNORE_INDEX)
    drawn = places[torch.randint(len(places), ids.shape, generator=generator)]
    source = torch.where(exchanged, drawn, torch.arange(ids.numel()).view(ids.shape))  # (B, S) into B · S
    seen = ids.flatten()[source].masked_fill(hidden, mask_id)
    if ngram_batch is not None:
        ngram_batch = replace(ngram_batch, index=ngram_batch.index.flatten()[source].masked_fill(hidden, 0))
    return seen, ngram_batch, ids.masked_fill(~chosen, IGNORE_INDEX)


def without_previews(ngram_batch: NgramBatch, ahead: Bool[Tensor, " N"], guessed: Bool[Tensor, "B S"]) -> NgramBatch:
    """Return the n-grams without those that reveal later masked tokens.

    In scripts without spaces n-grams look ahead.

    Args:
        ngram_batch: n-grams of a batch.
        ahead: for each n-gram id, True if it extends beyond its token.
        guessed: True at the tokens to predict.
    """
    reveals = ahead[ngram_batch.ngrams].any(dim=1)[ngram_batch.index]  # (B, S)
    near = torch.zeros_like(guessed)
    for distance in range(1, AHEAD + 1):
        near[:, :-distance] |= guessed[:, distance:]
    return replace(ngram_batch, index=ngram_batch.index.masked_fill(reveals & near, 0))

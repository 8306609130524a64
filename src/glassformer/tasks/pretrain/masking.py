"""Which tokens a masked language model must guess, and what it sees in their place (Devlin et al. 2019, 3.1)."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from glassformer.nn.cross_entropy import IGNORE_INDEX

SHARE = 0.15
"""Of the tokens of a text, how many are to be guessed."""
HIDDEN, EXCHANGED = 0.8, 0.1
"""Of those, how many read [MASK] and how many some other token; the rest is left as it is, so that the model cannot
tell which of the tokens it sees are true."""


def mask_tokens(
    ids: Int[Tensor, "B S"], mask_id: int, vocab_size: int, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B S"]]:
    """What the model sees of padded ids (B, S), and its labels: the true token where it must guess, else IGNORE_INDEX.

    Of every text that many of its tokens, rounded, at least one: never a special token, whose ids come first, the
    mask last. Drawn anew at each call (Liu et al. 2019, 4.1) from `generator`, or torch's own, which checkpoints keep.
    """
    eligible = ids > mask_id
    n_chosen = (SHARE * eligible.sum(dim=1)).round().clamp(min=1)
    order = torch.rand(ids.shape, generator=generator).masked_fill(~eligible, 2.0)
    rank = order.argsort(dim=1).argsort(dim=1)
    chosen = eligible & (rank < n_chosen[:, None])
    fate = torch.rand(ids.shape, generator=generator)
    others = torch.randint(mask_id + 1, vocab_size, ids.shape, generator=generator, dtype=ids.dtype)
    seen = ids.masked_fill(chosen & (fate < HIDDEN), mask_id)
    seen = torch.where(chosen & (fate >= 1 - EXCHANGED), others, seen)
    return seen, ids.masked_fill(~chosen, IGNORE_INDEX)

"""Vectors of how words are spelled: of each token the mean of its n-grams' rows, beside the row of the word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Spelling:
    """The n-grams of a batch of texts.

    Words repeat, so each is spelled once and its vector computed once.

    Args:
        which: (B, S) for each token the row of `ngrams` that spells it; row 0 spells nothing.
        ngrams: (U, G) numbers of n-grams, from 1; 0 where a word has fewer than G.
    """

    which: Int[Tensor, "B S"]
    ngrams: Int[Tensor, "U G"]

    def to(self, device: torch.device | str) -> Spelling:
        """The same on another device."""
        which, ngrams = (x.to(device, non_blocking=True) for x in (self.which, self.ngrams))
        return Spelling(which, ngrams)


class NgramEmbedding(nn.Module):
    """A table of n-grams, and of a token's rows in it the mean or, as in Bojanowski et al. 2017, the sum.

    Args:
        n_ngrams, d_model: the table's shape; row 0 stands for none and never counts.
        std: of the start.
        how: "mean" or "sum".
    """

    def __init__(self, n_ngrams: int, d_model: int, std: float, how: Literal["mean", "sum"] = "mean") -> None:
        super().__init__()
        self.how = how
        self.weight = nn.Parameter(torch.empty(n_ngrams, d_model))
        nn.init.normal_(self.weight, std=std)

    def forward(self, spelling: Spelling) -> Float[Tensor, "B S D"]:
        """A vector a token; zeros where nothing is spelled."""
        vectors = F.embedding_bag(spelling.ngrams, self.weight, mode=self.how, padding_idx=0)  # (U, D)
        return F.embedding(spelling.which, vectors)

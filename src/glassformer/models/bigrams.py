"""Vectors of pairs of neighbouring words, beside the rows of the words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class BigramEmbedding(nn.Module):
    """A row for each listed pair of ids; a token gets that of itself and the one before it (Joulin et al. 2017).

    A word hidden or erased takes its pairs with it, since pairs are looked up by the ids that the model reads.

    Args:
        bigrams: the pairs that have a row, at least one.
        vocab_size: ids are below it.
        d_model: width of a row.
        std: of the start. Row 0 stands for a pair that is not listed and stays zero.
    """

    def __init__(self, bigrams: Sequence[tuple[int, int]], vocab_size: int, d_model: int, std: float) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        first, second = torch.from_numpy(np.array(bigrams, np.int64)).unbind(1)
        keys = first * vocab_size + second
        # The tokenizer's file lists the pairs, so they are not stored a second time with the weights.
        self.keys: Tensor
        self.register_buffer("keys", keys.sort().values, persistent=False)
        self.weight = nn.Parameter(torch.empty(len(bigrams) + 1, d_model))
        nn.init.normal_(self.weight, std=std)
        nn.init.zeros_(self.weight[0])

    def numbers(self, ids: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """The row of each token: of the pair that it ends, 0 where that is not listed."""
        before = F.pad(ids[:, :-1], (1, 0))  # id 0 is padding, which is in no pair
        wanted = before * self.vocab_size + ids
        place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[place] == wanted, place + 1, 0)

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """A vector a token; zeros where its pair is not listed."""
        return F.embedding(self.numbers(ids), self.weight, padding_idx=0)

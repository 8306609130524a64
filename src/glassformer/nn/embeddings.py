"""From token ids to vectors: the token embedding, scaled, plus its position."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.nn.dropout import Dropout


class TokenEmbedding(nn.Module):
    """embedding[id] · √d_model + position, then dropout (paper, 3.4, 3.5 and 5.4).

    With weights from N(0, 1/d_model) a scaled embedding has unit variance, about that of the sinusoids, and the table
    also serves as output projection when it is tied.

    Args:
        vocab_size: rows V of the table.
        d_model: width D of a row.
        positions: a module from positions (B, L) to vectors (B, L, D), or None (rotary or no positions).
        dropout: probability of dropout on the sum.
        std: standard deviation of the initial weights, for an embedding that is not scaled: the vectors of rare tokens
            soon outgrow a small one.
    """

    def __init__(
        self, vocab_size: int, d_model: int, positions: nn.Module | None, dropout: float, std: float | None = None
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model) if std is None else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=std or d_model**-0.5)
        self.positions, self.dropout = positions, Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B L"], positions: Int[Tensor, "#B L"], *more: Float[Tensor, "B L D"]
    ) -> Float[Tensor, "B L D"]:
        """Return the sum of token embeddings, positions and further embeddings (`more`), such as n-grams."""
        x = nn.functional.embedding(ids, self.weight) * self.scale
        for added in more:
            x = x + added
        return self.dropout(x if self.positions is None else x + self.positions(positions))

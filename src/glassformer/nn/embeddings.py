"""From token ids to vectors: the token embedding, scaled, plus its position (sinusoidal, learned, rotary or none).

Sinusoidal and learned positions are vectors added to the token embeddings; rotary positions rotate queries and keys in
self attention. Positions are given per row, (B, L), since texts packed into a row begin at 0 each; B is 1 where all
rows have the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.nn.dropout import Dropout
from glassformer.nn.steps import step


def sinusoidal(n_positions: int, d_model: int) -> Float[Tensor, "L D"]:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same) (paper, 3.5).

    Every position differs, and PE(pos + k) is a rotation of PE(pos) that depends only on k. An odd d_model loses its
    last cosine.
    """
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000.0 ** (even / d_model)  # (L, ceil(D/2))
    table = torch.empty(n_positions, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.float()


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids of positions 0 … max_len - 1, times an amplitude (1 in the paper).

    It is that of the token embeddings, which would drown in sinusoids of amplitude 1 where they are not scaled.
    """

    table: Tensor

    def __init__(self, max_len: int, d_model: int, amplitude: float = 1.0) -> None:
        super().__init__()
        self.amplitude = amplitude
        self.register_buffer("table", sinusoidal(max_len, d_model) * amplitude, persistent=False)

    def forward(self, positions: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        x, of = self.table[positions], {"scheme": "sinusoidal", "amplitude": self.amplitude}
        return step(self, "positions", x, positions, **of)


class LearnedPositions(nn.Module):
    """One trained vector per position, as in BERT and GPT-2 (the paper found no difference)."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, positions: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        return step(self, "positions", self.weight[positions], positions, scheme="learned")


@dataclass(frozen=True)
class Rotation:
    """Rotary positions (Su et al. 2021): cosines and sines.

    Feature j is paired with j + E/2, as in most implementations; the paper pairs neighbours, which is the same up to a
    permutation of features.
    """

    cos: Float[Tensor, "#B L E"]
    sin: Float[Tensor, "#B L E"]
    base: float  # shown by `explain`

    @staticmethod
    def at(positions: Int[Tensor, "B L"], d_head: int, base: float = 10000.0) -> "Rotation":
        """Return the rotation of each position, for heads of even width d_head."""
        if d_head % 2:
            raise ValueError(f"rotary positions need an even d_head, not {d_head}")
        frequency = base ** (-torch.arange(0, d_head, 2, device=positions.device).float() / d_head)
        angle = positions.float()[..., None] * frequency  # (B, L, E/2)
        angle = torch.cat([angle, angle], dim=-1)
        return Rotation(angle.cos(), angle.sin(), base)

    def rotate(self, x: Float[Tensor, "B H L E"]) -> Float[Tensor, "B H L E"]:
        """Rotate queries or keys, every head alike."""
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        cos, sin = self.cos[:, None].to(x.dtype), self.sin[:, None].to(x.dtype)  # (B, 1, L, E)
        return x * cos + turned * sin


class TokenEmbedding(nn.Module):
    """embedding[id] · √d_model + position, then dropout (paper, 3.4, 3.5 and 5.4).

    With weights from N(0, 1/d_model) a scaled embedding has unit variance (sinusoids have 1/2), and the table also
    serves as output projection when it is tied.

    Args:
        vocab_size: rows V of the table.
        d_model: width D of a row.
        positions: a module from positions (B, L) to vectors (B, L, D), or None (rotary or no positions).
        dropout: probability of dropout on the sum.
        std: the paper's scale and N(0, 1/d_model) when absent. A number is the standard deviation of the initial
            weights of an embedding without the scale √d_model, in which the vectors of rare tokens stay small.
        norm: a norm of the sum, before dropout, as in BERT; None for none.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: nn.Module | None,
        dropout: float,
        std: float | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model) if std is None else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=std or d_model**-0.5)
        self.positions, self.norm, self.dropout = positions, norm, Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B L"], positions: Int[Tensor, "#B L"], *more: Float[Tensor, "B L D"]
    ) -> Float[Tensor, "B L D"]:
        """Return the sum of token embeddings, positions and further embeddings (`more`), such as n-grams."""
        ids = step(self, "ids", ids)
        x = step(self, "rows", nn.functional.embedding(ids, self.weight), ids)
        if self.scale != 1:
            x = step(self, "scaled", x * self.scale, x, factor=self.scale)
        for added in more:
            x = step(self, "with", x + added, x, added)
        if self.positions is not None:
            at = self.positions(positions)
            x = step(self, "sum", x + at, x, at)
        return self.dropout(x if self.norm is None else self.norm(x))

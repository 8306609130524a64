"""Splitting a projection into heads: `split_heads(x, n_heads)`, from (B, L, H·E) to (B, H, L, E)."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(x: Tensor, n_heads: Tensor) -> Tensor:
    """Return the heads, (B, H, L, E), of a projection (B, L, H·E); feature h·E + e goes to head h."""
    heads = int(n_heads)
    return x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2)


def slices(x: Tensor, n_heads: Tensor) -> Tensor:
    """Return the same from slices of the last axis; the reference."""
    return torch.stack(x.chunk(int(n_heads), dim=-1), dim=1)


def view_without_transpose(x: Tensor, n_heads: Tensor) -> Tensor:
    """Reshape to the final shape at once."""
    heads = int(n_heads)
    return x.reshape(x.shape[0], heads, x.shape[1], x.shape[2] // heads)


def features_before_heads(x: Tensor, n_heads: Tensor) -> Tensor:
    """Give every H-th feature to a head."""
    heads = int(n_heads)
    return x.unflatten(-1, (x.shape[-1] // heads, heads)).permute(0, 3, 1, 2)


def not_transposed(x: Tensor, n_heads: Tensor) -> Tensor:
    """Leave the heads behind the positions."""
    heads = int(n_heads)
    return x.unflatten(-1, (heads, x.shape[-1] // heads))


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return a projection and its number of heads; all sizes differ."""
    batch, length, n_heads, width = (torch.randperm(6, generator=generator)[:4] + 2).tolist()
    return torch.randn(batch, length, n_heads * width, generator=generator), torch.tensor(n_heads)


EXERCISE = Exercise(
    reference=slices,
    inputs=inputs,
    mistakes={
        view_without_transpose: "a reshape alone mixes features of different tokens: divide the last axis, transpose",
        features_before_heads: "head h has neighbouring features h·E to h·E + E - 1, not every H-th",
        not_transposed: "the axis of the heads must stand before that of the positions",
    },
)

"""What a head looks at: `looks_back(weights)`, the mean weight of each head on the previous token."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(weights: Tensor) -> Tensor:
    """Return the mean weight (H,) on the previous token; weights are (H, L, L), queries by keys."""
    return weights.diagonal(-1, 1, 2).mean(-1)


def by_index(weights: Tensor) -> Tensor:
    """Take the weights one by one; the reference."""
    n_heads, length, _ = weights.shape
    return torch.stack([sum(weights[h, i, i - 1] for i in range(1, length)) / (length - 1) for h in range(n_heads)])


def next_token(weights: Tensor) -> Tensor:
    """Read the diagonal above the main one: keys after the query."""
    return weights.diagonal(1, 1, 2).mean(-1)


def over_all_queries(weights: Tensor) -> Tensor:
    """Divide by L, as if the first query had a token before it."""
    return weights.diagonal(-1, 1, 2).sum(-1) / weights.shape[1]


def itself(weights: Tensor) -> Tensor:
    """Read the main diagonal."""
    return weights.diagonal(0, 1, 2).mean(-1)


def of_heads(weights: Tensor) -> Tensor:
    """Take the diagonal of the first two axes, heads and queries."""
    return weights.diagonal(-1).mean(-1)


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return weights of some heads over some tokens."""
    n_heads, length = (torch.randperm(4, generator=generator)[:2] + 3).tolist()
    return (torch.randn(n_heads, length, length, generator=generator).softmax(-1),)


EXERCISE = Exercise(
    reference=by_index,
    inputs=inputs,
    mistakes={
        next_token: "these are the keys after the query: rows are queries, columns are keys",
        over_all_queries: "the first query has no token before it, so the mean is over L - 1 queries",
        itself: "this is the weight of each token on itself: one further down",
        of_heads: "torch.diagonal takes the first two axes by default: here they are heads and queries",
    },
)

"""The causal mask: `causal(n_queries, n_keys)`, True = may attend."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(n_queries: Tensor, n_keys: Tensor) -> Tensor:
    """Return the causal mask (Q, K), booleans; the queries are the last Q of the K positions."""
    keys = torch.arange(int(n_keys))
    queries = keys[-int(n_queries) :]
    return keys <= queries[:, None]


def library(n_queries: Tensor, n_keys: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer.nn.attention import causal_mask

    return causal_mask(int(n_queries), int(n_keys))


def aligned_at_the_start(n_queries: Tensor, n_keys: Tensor) -> Tensor:
    """Take the queries for the first positions."""
    return torch.ones(int(n_queries), int(n_keys), dtype=torch.bool).tril()


def inverted(n_queries: Tensor, n_keys: Tensor) -> Tensor:
    """Let True mean hidden."""
    return ~library(n_queries, n_keys)


def without_itself(n_queries: Tensor, n_keys: Tensor) -> Tensor:
    """Hide a token from itself."""
    full = torch.ones(int(n_queries), int(n_keys), dtype=torch.bool)
    return full.tril(diagonal=int(n_keys - n_queries) - 1)


def future(n_queries: Tensor, n_keys: Tensor) -> Tensor:
    """Attend to later tokens."""
    return torch.ones(int(n_queries), int(n_keys), dtype=torch.bool).triu(diagonal=int(n_keys - n_queries))


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return a number of queries and a larger number of keys."""
    n_queries = int(torch.randint(2, 6, (), generator=generator))
    return torch.tensor(n_queries), torch.tensor(n_queries + int(torch.randint(1, 5, (), generator=generator)))


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        aligned_at_the_start: "the queries are the last positions, not the first: the triangle ends at the lower right",
        inverted: "True must mean that a query may attend, and here it means the opposite",
        without_itself: "a token may attend to itself, too",
        future: "this lets tokens attend to later ones; keep the lower triangle",
    },
)

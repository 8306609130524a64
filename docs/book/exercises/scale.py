"""Scaled dot-product attention: `scaled_attention(q, k, v)`, for q (Q, E), k (K, E), v (K, F)."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q kᵀ / √E) v: (Q, F) from (Q, E), (K, E) and (K, F)."""
    scores = q @ k.T / q.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ v


def library(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer import attention

    return attention(q[None, None], k[None, None], v[None, None])[0][0, 0]


def no_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Leave the scale out."""
    return (q @ k.T).softmax(dim=-1) @ v


def scaled_by_number_of_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divide by the root of the number of keys."""
    return (q @ k.T / k.shape[0] ** 0.5).softmax(dim=-1) @ v


def scaled_by_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divide by the width instead of its root."""
    return (q @ k.T / q.shape[-1]).softmax(dim=-1) @ v


def scaled_by_value_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divide by the root of the values' width."""
    return (q @ k.T / v.shape[-1] ** 0.5).softmax(dim=-1) @ v


def scaled_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divide after the softmax."""
    return (q @ k.T).softmax(dim=-1) / q.shape[-1] ** 0.5 @ v


def softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Normalize over the queries."""
    return (q @ k.T / q.shape[-1] ** 0.5).softmax(dim=0) @ v


def sizes(generator: torch.Generator) -> tuple[int, int, int, int]:
    """Return four different sizes: queries, keys, width, width of the values."""
    chosen = torch.randperm(9, generator=generator)[:4] + 2
    return tuple(chosen.tolist())  # type: ignore[return-value]


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return random queries, keys and values."""
    n_queries, n_keys, width, value_width = sizes(generator)
    shapes = (n_queries, width), (n_keys, width), (n_keys, value_width)
    return tuple(torch.randn(*shape, generator=generator) for shape in shapes)


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        no_scale: "the scores are not divided by anything",
        scaled_by_number_of_keys: "the scale is the root of the width of a key, not of the number of keys",
        scaled_by_width: "divide by the square root of the width, not by the width",
        scaled_by_value_width: "the width of the values plays no part in the scores; take that of the queries",
        scaled_weights: "divide the scores before the softmax; afterwards the weights no longer sum to 1",
        softmax_over_queries: "each query distributes its own attention: the softmax runs over the keys, `dim=-1`",
    },
)

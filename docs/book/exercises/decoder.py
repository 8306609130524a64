"""Cross-attention of one head: `cross_attention(x, memory, w_q, w_k, w_v)`."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Return for each token of x (T, D) a mean of the values of memory (S, D), (T, E)."""
    scores = (x @ w_q) @ (memory @ w_k).T / w_q.shape[1] ** 0.5
    return scores.softmax(dim=-1) @ (memory @ w_v)


def library(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer import attention

    return attention((x @ w_q)[None, None], (memory @ w_k)[None, None], (memory @ w_v)[None, None])[0][0, 0]


def queries_from_memory(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Take queries and keys from the memory, as one tutorial says."""
    return solution(memory, memory, w_q, w_k, w_v)


def exchanged(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Take queries from the memory, keys and values from the target."""
    return solution(memory, x, w_q, w_k, w_v)


def self_attention(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Use the target alone."""
    return solution(x, x, w_q, w_k, w_v)


def unscaled(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Leave the scale out."""
    return ((x @ w_q) @ (memory @ w_k).T).softmax(dim=-1) @ (memory @ w_v)


def scaled_by_d_model(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Divide by the square root of the model's width."""
    scores = (x @ w_q) @ (memory @ w_k).T / x.shape[1] ** 0.5
    return scores.softmax(dim=-1) @ (memory @ w_v)


def over_the_target(x: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Normalize over the queries."""
    scores = (x @ w_q) @ (memory @ w_k).T / w_q.shape[1] ** 0.5
    return scores.softmax(dim=0) @ (memory @ w_v)


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return a target, a memory and three projections; all sizes differ."""
    target, source, width, head = (torch.randperm(7, generator=generator)[:4] + 2).tolist()
    shapes = [(target, width), (source, width), *[(width, head)] * 3]
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        queries_from_memory: "the memory gives keys and values; queries are projected from `x`",
        exchanged: "queries come from the target `x`, keys and values from `memory`",
        self_attention: "this is self-attention of the target: `memory` is not used",
        unscaled: "divide the scores by the square root of the head's width E",
        scaled_by_d_model: "the scale is the width of queries and keys, E, not that of the model",
        over_the_target: "each target token has weights over the source that sum to 1: softmax over the last axis",
    },
)

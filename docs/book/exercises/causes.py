"""Switching off one head: `without_head(context, weight, bias, head)`, the output of attention that is left."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(context: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """Return the output of attention (L, D) with one head off; context is (H, L, E), weight (D, H·E), bias (D,)."""
    kept = context.clone()
    kept[int(head)] = 0
    return kept.transpose(0, 1).flatten(1) @ weight.T + bias


def subtracted(context: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """Take the head's share away from the output of all; the reference."""
    n_heads, _, width = context.shape
    columns = weight.unflatten(1, (n_heads, width))
    return torch.einsum("hle,dhe->ld", context, columns) - context[int(head)] @ columns[:, int(head)].T + bias


def after_the_projection(context: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """Zero a block of output features, which every head has written to."""
    out = context.transpose(0, 1).flatten(1) @ weight.T + bias
    size = max(1, out.shape[1] // len(context))
    out = out.clone()
    out[:, int(head) * size : (int(head) + 1) * size] = 0
    return out


def without_bias(context: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """Drop the bias with the head."""
    return solution(context, weight, torch.zeros_like(bias), head)


def only_the_head(context: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """Keep the head and switch off the others."""
    kept = torch.zeros_like(context)
    kept[int(head)] = context[int(head)]
    return kept.transpose(0, 1).flatten(1) @ weight.T + bias


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return contexts of some heads, a projection, and the head to switch off; all sizes differ."""
    n_heads, length, width = (torch.randperm(5, generator=generator)[:3] + 2).tolist()
    d_model = n_heads * (width + 1)
    return (
        torch.randn(n_heads, length, width, generator=generator),
        torch.randn(d_model, n_heads * width, generator=generator),
        torch.randn(d_model, generator=generator),
        torch.randint(0, n_heads, (), generator=generator),
    )


EXERCISE = Exercise(
    reference=subtracted,
    inputs=inputs,
    mistakes={
        after_the_projection: "after the projection every feature mixes all heads: cut before it",
        without_bias: "the bias belongs to no head, so it stays",
        only_the_head: "this keeps the head and drops the others: the other way round",
    },
)

"""Layer norm: `layer_norm(x, weight, bias)`, for x (B, L, D)."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise

EPS = 1e-5


def solution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the layer norm of each token's features, (B, L, D), with eps 1e-5."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True, unbiased=False)
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def library(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return what torch computes; the reference."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, EPS)


def over_tokens_too(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalize over tokens and features."""
    return torch.nn.functional.layer_norm(x, x.shape[1:], eps=EPS) * weight + bias


def over_the_batch(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalize each feature over all tokens, as batch norm does."""
    mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1), unbiased=False)
    return (x - mean) / (variance + EPS).sqrt() * weight + bias


def unbiased(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Divide by D - 1."""
    mean, variance = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True)
    return (x - mean) / (variance + EPS).sqrt() * weight + bias


def no_mean(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Leave the mean in, as RMS norm does."""
    return x / ((x**2).mean(dim=-1, keepdim=True) + EPS).sqrt() * weight + bias


def no_weights(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Leave scale and shift out."""
    return torch.nn.functional.layer_norm(x, weight.shape, eps=EPS)


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return tokens whose mean is not zero, a scale and a shift; all sizes differ."""
    batch, length, width = (torch.randperm(6, generator=generator)[:3] + 2).tolist()
    x = torch.randn(batch, length, width, generator=generator) + 0.7
    return x, torch.randn(width, generator=generator), torch.randn(width, generator=generator)


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        over_tokens_too: "mean and variance are of one token's features, not of the whole text",
        over_the_batch: "this normalizes each feature over the tokens, as batch norm does; take the last axis",
        unbiased: "the variance is the mean of the squares: divide by D, not by D - 1",
        no_mean: "subtract the mean; without it, this is RMS norm",
        no_weights: "multiply by `weight` and add `bias` at the end",
    },
)

"""Pooling: `masked_mean(x, real)`, one vector per text."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(x: Tensor, real: Tensor) -> Tensor:
    """Return the mean of the real tokens of each text, (B, D), for x (B, S, D) and real (B, S)."""
    total = (x * real[:, :, None]).sum(dim=1)
    return total / real.sum(dim=1, keepdim=True)


def library(x: Tensor, real: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer.models.encoder_models import pool

    return pool(x, real, "mean")


def with_padding(x: Tensor, real: Tensor) -> Tensor:
    """Take the mean of all tokens."""
    return x.mean(dim=1)


def divided_by_the_length(x: Tensor, real: Tensor) -> Tensor:
    """Leave padding out of the sum, and count it."""
    return (x * real[:, :, None]).mean(dim=1)


def padding_only(x: Tensor, real: Tensor) -> Tensor:
    """Take the mask for that of padding."""
    return (x * ~real[:, :, None]).sum(dim=1) / (~real).sum(dim=1, keepdim=True).clamp(min=1)


def over_features(x: Tensor, real: Tensor) -> Tensor:
    """Take the mean over features."""
    return (x * real[:, :, None]).mean(dim=2)


def over_the_batch(x: Tensor, real: Tensor) -> Tensor:
    """Divide by the number of real tokens of the whole batch."""
    return (x * real[:, :, None]).sum(dim=1) / real.sum()


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return token vectors and a mask with some padding in some text; all sizes differ."""
    batch, width, length = (torch.randperm(5, generator=generator)[:3] + 2).tolist()
    lengths = torch.randint(1, length + 1, (batch,), generator=generator)
    lengths[0], lengths[1] = length, max(1, length - 2)
    return torch.randn(batch, length, width, generator=generator), torch.arange(length) < lengths[:, None]


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        with_padding: "padding is part of this mean; use `real`",
        divided_by_the_length: "the sum is right; divide by the number of real tokens, not by the length",
        padding_only: "True in `real` means a real token, and here it means padding",
        over_features: "the mean is over the tokens, axis 1, and keeps the features",
        over_the_batch: "divide each text by its own number of tokens: sum over axis 1 only",
    },
)

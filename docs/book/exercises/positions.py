"""Sinusoidal positions: `positions(length, width)`, shape (length, width)."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(length: Tensor, width: Tensor) -> Tensor:
    """Return the positions (L, D) of the paper, section 3.5, for an even D."""
    positions = torch.arange(int(length), dtype=torch.float32)
    frequencies = 10000 ** (-torch.arange(0, int(width), 2) / width)
    angles = positions[:, None] * frequencies
    table = torch.empty(int(length), int(width))
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()
    return table


def library(length: Tensor, width: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer.nn.embeddings import sinusoidal

    return sinusoidal(int(length), int(width))


def halves(length: Tensor, width: Tensor) -> Tensor:
    """Put all sines before all cosines."""
    table = library(length, width)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=-1)


def cosines_first(length: Tensor, width: Tensor) -> Tensor:
    """Exchange sines and cosines."""
    table = library(length, width)
    return torch.stack([table[:, 1::2], table[:, 0::2]], dim=-1).flatten(-2)


def own_frequency_per_feature(length: Tensor, width: Tensor) -> Tensor:
    """Let each feature have a frequency of its own."""
    positions = torch.arange(int(length), dtype=torch.float32)
    angles = positions[:, None] * 10000 ** (-torch.arange(int(width)) / width)
    return torch.where(torch.arange(int(width)) % 2 == 0, angles.sin(), angles.cos())


def from_one(length: Tensor, width: Tensor) -> Tensor:
    """Count positions from 1."""
    return library(length + 1, width)[1:]


def transposed(length: Tensor, width: Tensor) -> Tensor:
    """Give features as rows."""
    return library(length, width).T


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return an odd length, and an even width of at least 4."""
    length = 2 * int(torch.randint(2, 8, (), generator=generator)) + 1
    return torch.tensor(length), torch.tensor(2 * int(torch.randint(2, 8, (), generator=generator)))


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        halves: "sine and cosine of a frequency stand next to each other here: features 0 and 1, 2 and 3, and so on",
        cosines_first: "the sine comes first in each pair",
        own_frequency_per_feature: "a pair shares its frequency: step through the features by two",
        from_one: "the first position is 0",
        transposed: "a row is a position, and a column a feature",
    },
)

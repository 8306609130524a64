"""Padding: `pad(flat, lengths)`, texts one after the other as rows of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(flat: Tensor, lengths: Tensor) -> Tensor:
    """Return the texts as rows (B, S), filled up with 0 to the longest."""
    padded = torch.zeros(len(lengths), int(lengths.max()), dtype=torch.long)
    for row, ids in zip(padded, flat.split(lengths.tolist()), strict=True):
        row[: len(ids)] = ids
    return padded


def library(flat: Tensor, lengths: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer.data.corpus import gather_padded

    ends = lengths.cumsum(0)
    return torch.from_numpy(gather_padded(flat.numpy(), (ends - lengths).numpy(), lengths.numpy(), fill=0)[0])


def on_the_left(flat: Tensor, lengths: Tensor) -> Tensor:
    """Put the padding before the texts."""
    padded = torch.zeros(len(lengths), int(lengths.max()), dtype=torch.long)
    for row, ids in zip(padded, flat.split(lengths.tolist()), strict=True):
        row[len(row) - len(ids) :] = ids
    return padded


def to_the_shortest(flat: Tensor, lengths: Tensor) -> Tensor:
    """Cut all texts to the shortest."""
    return library(flat, lengths)[:, : int(lengths.min())]


def without_lengths(flat: Tensor, lengths: Tensor) -> Tensor:
    """Take rows of equal length from the flat ids."""
    padded = torch.zeros(len(lengths) * int(lengths.max()), dtype=torch.long)
    padded[: len(flat)] = flat
    return padded.view(len(lengths), -1)


def as_floats(flat: Tensor, lengths: Tensor) -> Tensor:
    """Return floats, as `torch.zeros` does by default."""
    return library(flat, lengths).float()


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return ids of texts of different lengths, and the lengths."""
    lengths = torch.randperm(7, generator=generator)[: int(torch.randint(2, 5, (), generator=generator))] + 1
    return torch.randint(5, 100, (int(lengths.sum()),), generator=generator), lengths


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        on_the_left: "the texts begin at the first column; the padding follows them",
        to_the_shortest: "this cuts texts; S is the length of the longest",
        without_lengths: "rows must begin where texts begin: use `lengths`",
        as_floats: "ids are integers: make the result with `dtype=torch.long`",
    },
)

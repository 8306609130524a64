"""When a head is there: `there_from(shares, level)`, the first measurement after which it stays."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(shares: Tensor, level: Tensor) -> Tensor:
    """Return the index of the first of the shares (N,) from which all are at least `level`; N if the last is not."""
    below = (shares < level).nonzero()
    return below[-1, 0] + 1 if len(below) else torch.tensor(0)


def backwards(shares: Tensor, level: Tensor) -> Tensor:
    """Go back from the last one as long as the level is held; the reference."""
    first = len(shares)
    while first and shares[first - 1] >= level:
        first -= 1
    return torch.tensor(first)


def first_above(shares: Tensor, level: Tensor) -> Tensor:
    """Take the first that reaches the level, whatever comes after it."""
    above = (shares >= level).nonzero()
    return above[0, 0] if len(above) else torch.tensor(len(shares))


def strictly(shares: Tensor, level: Tensor) -> Tensor:
    """Demand more than the level."""
    return backwards(shares, level + 1e-6)


def last_below(shares: Tensor, level: Tensor) -> Tensor:
    """Return the last one below the level instead of the one after it."""
    return (backwards(shares, level) - 1).clamp(min=0)


def never_is_last(shares: Tensor, level: Tensor) -> Tensor:
    """Return the last index where the last share is below the level."""
    return backwards(shares, level).clamp(max=len(shares) - 1)


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return shares in tenths that mostly rise, and a level, which some of them have exactly."""
    n = int(torch.randint(4, 10, (), generator=generator))
    noise = torch.randint(-3, 4, (n,), generator=generator)
    shares = (torch.linspace(1, 8, n).round() + noise).clamp(0, 10) / 10
    return shares, torch.randint(4, 9, (), generator=generator) / 10


EXERCISE = Exercise(
    reference=backwards,
    inputs=inputs,
    mistakes={
        first_above: "after this one the share falls below the level again: it has to stay",
        strictly: "a share that equals the level is enough",
        last_below: "this is the last share below the level; the answer is the one after it",
        never_is_last: "where the last share is below the level the answer is N, which is no index",
    },
)

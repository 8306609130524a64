"""A small doctor: `diagnose(train, valid, chance)`, a diagnosis from two curves of losses."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise

DIVERGED, LEAK, NOT_LEARNING, OVERFITTING, HEALTHY = range(5)


def solution(train: Tensor, valid: Tensor, chance: Tensor) -> Tensor:
    """Return the number of the first finding that fits, as a tensor without axes; losses are (N,)."""
    if not (train.isfinite().all() and valid.isfinite().all()) or train[-1] > train[0]:
        return torch.tensor(0)
    if train[0] < chance / 2:
        return torch.tensor(1)
    if train[-1] > 0.8 * train[0]:
        return torch.tensor(2)
    if valid[-1] > 1.1 * valid.min():
        return torch.tensor(3)
    return torch.tensor(4)


def blind_to_nan(train: Tensor, valid: Tensor, chance: Tensor) -> Tensor:
    """Compare only: every comparison with NaN is false."""
    return solution(train.nan_to_num(0.0), valid.nan_to_num(0.0), chance)


def from_the_first(train: Tensor, valid: Tensor, chance: Tensor) -> Tensor:
    """Compare the last validation loss with the first instead of the best."""
    found = solution(train, valid, chance)
    if found >= OVERFITTING:
        return torch.tensor(OVERFITTING if valid[-1] > 1.1 * valid[0] else HEALTHY)
    return found


def of_training(train: Tensor, valid: Tensor, chance: Tensor) -> Tensor:
    """Look for overfitting in the training loss."""
    return solution(train, train, chance)


def overfitting_first(train: Tensor, valid: Tensor, chance: Tensor) -> Tensor:
    """Check for overfitting before anything else."""
    return torch.tensor(OVERFITTING) if valid[-1] > 1.1 * valid.min() else solution(train, valid, chance)


def without_leak(train: Tensor, valid: Tensor, chance: Tensor) -> Tensor:
    """Trust a loss that is low from the start."""
    return solution(train, valid, torch.tensor(0.0))


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return curves of one of the findings, with noise."""
    kind = int(torch.randint(0, 8, (), generator=generator))
    n = int(torch.randint(6, 12, (), generator=generator))
    time = torch.linspace(0, 1, n)
    chance = 3 + 2 * torch.rand((), generator=generator)
    train = chance * (1 - 0.8 * time)
    valid = chance * (1 - 0.7 * time)
    if kind == 0:
        train, valid = chance * (1 + time), chance * (1 + time)
    elif kind == 1:
        train[-2:] = torch.nan
    elif kind == 2:
        train, valid = chance * (0.4 - 0.3 * time), chance * (0.4 - 0.2 * time)
    elif kind == 3:
        train, valid = chance * (1 - 0.1 * time), chance * (1 - 0.1 * time)
    elif kind == 4:
        valid = chance * (1 - 1.6 * time + 1.4 * time**2)
    elif kind == 6:
        valid = chance * (1 - 2 * time + 2.4 * time**2)
    elif kind == 5:
        train, valid = chance * (1 - 0.1 * time), chance * (1 - 2 * time + 2.2 * time**2)
    return train, valid, chance


EXERCISE = Exercise(
    reference=solution,
    inputs=inputs,
    mistakes={
        blind_to_nan: "every comparison with NaN is false: check `isfinite` first",
        from_the_first: "compare the last validation loss with the smallest one, not with the first",
        of_training: "overfitting shows in the validation loss, not in the training loss",
        overfitting_first: "take the findings in the order of the table",
        without_leak: "a loss that begins far below chance is a finding, too",
    },
)

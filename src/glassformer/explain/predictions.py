"""What the model says after each position: the best tokens with their logits, and the token that in fact follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import DivergedError
from glassformer.tasks import Task

TOP = 50
"""Candidates told of each prediction."""


@dataclass(frozen=True)
class Candidate:
    """A class or token with its logit and log-probability (nats)."""

    id: int
    piece: str
    """The class, or the token as a person would write it."""
    logit: float
    log_prob: float


@dataclass(frozen=True)
class NextToken(Candidate):
    """The token that follows."""

    rank: int
    """How many the model ranks before it."""


@dataclass(frozen=True)
class Prediction:
    """What the model says after one position, or of a whole text."""

    position: int | None
    """null: of the whole text, as a classifier does."""
    logsumexp: float
    top: list[Candidate]
    """At most 50, best first; all classes, for a classifier."""
    actual: NextToken | None
    """The token that in fact follows."""

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON; `asdict` would copy thousands of candidates field by field."""
        actual = None if self.actual is None else dict(vars(self.actual))
        return vars(self) | {"top": [dict(vars(candidate)) for candidate in self.top], "actual": actual}


def predict(
    task: Task,
    logits: Float[Tensor, "N C"],
    positions: Sequence[int | None],
    following: Sequence[int | None],
) -> list[Prediction]:
    """The predictions of N positions.

    Args:
        task: whose classes or tokens they are.
        logits: of each position.
        positions: their numbers. following: the token after each, None where nothing follows.

    Raises:
        DivergedError: the logits are not numbers.
    """
    values = logits.detach().cpu().numpy()
    if not np.isfinite(values).all():
        raise DivergedError(
            "the model's logits are not numbers (NaN), so there is nothing to explain",
            hint="the model diverged in training: look at an earlier checkpoint",
        )
    n_top = min(TOP, values.shape[1])
    best = np.argpartition(-values, n_top - 1, axis=1)[:, :n_top]
    # By logit, and by id where logits are equal, as the first of equals is what a greedy search takes.
    order = np.lexsort((best, -np.take_along_axis(values, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)
    wide = values.astype(np.float64)
    peak = wide.max(axis=1)
    norms = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=1))
    known: dict[int, str] = {}

    def candidate(row: int, i: int) -> dict[str, Any]:
        if i not in known:
            known[i] = task.label_names[i] if task.label_names else task.tokenizer.pieces([i])[0]
        logit = values[row, i]
        return {
            "id": i, "piece": known[i],
            "logit": short(logit), "log_prob": round(float(logit) - float(norms[row]), 7),
        }  # fmt: skip

    found: list[Prediction] = []
    for row, (position, token) in enumerate(zip(positions, following, strict=True)):
        top = [Candidate(**candidate(row, i)) for i in best[row].tolist()]
        actual = None
        if token is not None:
            rank = int((values[row] > values[row, token]).sum())
            actual = NextToken(**candidate(row, token), rank=rank)
        found.append(Prediction(position, float(norms[row]), top, actual))
    return found


def short(x: np.floating[Any]) -> float:
    """A float32 as the shortest decimal that stands for it: as exact, and half as long in JSON."""
    return float(str(np.float32(x)))

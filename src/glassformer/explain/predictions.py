"""Predictions at each position: the most probable classes or tokens with their logits, and the actual next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import DivergedError
from glassformer.tasks import Task

MAX_CANDIDATES = 50
"""Maximum candidates of a prediction."""


@dataclass(frozen=True)
class Candidate:
    """A class or token with its logit and log-probability (nats)."""

    id: int
    piece: str
    """The class, or the token in readable form."""
    logit: float
    log_prob: float


@dataclass(frozen=True)
class NextToken(Candidate):
    """The token that actually follows."""

    rank: int
    """Number of tokens with a larger logit."""


@dataclass(frozen=True)
class Prediction:
    """The prediction at one position, or for a whole text."""

    position: int | None
    """null: for the whole text, by a classifier."""
    logsumexp: float
    top: list[Candidate]
    """At most 50, best first; all classes, for a classifier."""
    actual: NextToken | None
    """The token that actually follows."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        # Not by asdict, which copies thousands of candidates field by field.
        actual = None if self.actual is None else dict(vars(self.actual))
        return vars(self) | {"top": [dict(vars(candidate)) for candidate in self.top], "actual": actual}


def top_predictions(
    task: Task, logits: Float[Tensor, "N C"], positions: Sequence[int | None], following: Sequence[int | None]
) -> list[Prediction]:
    """Return the predictions at N positions.

    Args:
        task: the task, with its classes or tokenizer.
        logits: the logits at each position.
        positions: the index of each position in its stream; None for a classifier.
        following: the token after each position, None where nothing follows.
    """
    values = logits.detach().cpu().numpy()
    if not np.isfinite(values).all():
        raise DivergedError(
            "the model's logits are NaN or infinite, so there is nothing to explain",
            hint="the model diverged in training: use an earlier checkpoint",
        )
    n_top = min(MAX_CANDIDATES, values.shape[1])
    best = np.argpartition(-values, n_top - 1, axis=1)[:, :n_top]
    # By logit, then by id: of equal logits a greedy search takes the first.
    order = np.lexsort((best, -np.take_along_axis(values, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)
    wide = values.astype(np.float64)
    peak = wide.max(axis=1)
    norms = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=1))
    texts: dict[int, str] = {}

    def candidate(row: int, i: int) -> dict[str, Any]:
        if i not in texts:
            texts[i] = readable(task, i)
        logit = values[row, i]
        log_prob = round(float(logit) - float(norms[row]), 7)
        return {"id": i, "piece": texts[i], "logit": shortest_float(logit), "log_prob": log_prob}

    predictions: list[Prediction] = []
    for row, (position, token) in enumerate(zip(positions, following, strict=True)):
        top = [Candidate(**candidate(row, i)) for i in best[row].tolist()]
        actual = None
        if token is not None:
            rank = int((values[row] > values[row, token]).sum())
            actual = NextToken(**candidate(row, token), rank=rank)
        predictions.append(Prediction(position, float(norms[row]), top, actual))
    return predictions


def rows_of(logits: Float[Tensor, "*P C"]) -> Float[Tensor, "N C"]:
    """Return logits with a row per prediction: a classifier has one, of the whole text."""
    return logits.reshape(-1, logits.shape[-1])


def readable(task: Task, id: int) -> str:
    """Return the class, or the token in readable form."""
    return task.label_names[id] if task.label_names else task.tokenizer.tokens([id])[0]


def shortest_float(x: np.floating[Any]) -> float:
    """Return a float32 as the shortest decimal that rounds to it: as exact, and half as long in JSON."""
    return float(str(np.float32(x)))

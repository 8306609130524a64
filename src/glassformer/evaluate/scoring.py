"""What a score is computed from: counts of each example, which add up.

Its interval and its paired test follow from it, whatever the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from glassformer.evaluate.significance import bootstrap_interval, paired_test, share_interval

Predictions = Sequence[dict[str, Any]]
"""The rows of `predictions.jsonl`: what was answered, and what is true."""
Counts = Float[np.ndarray, "N k"]


@dataclass(frozen=True)
class Scoring:
    """A score of many examples.

    Attributes:
        metric: its name.
        counts: stored predictions → (N, k), what is counted of each of them, or of each block of a text.
        score: the sum of such rows → the score.
        unit: what the rows are, where that is not what `n` of an evaluation counts; "" where it is.
        settings: what else the score depends on; scores of other settings do not compare.
    """

    metric: str
    counts: Callable[[Predictions], Counts]
    score: Callable[[np.ndarray], float]
    unit: str = ""
    settings: str = ""


def ratio(sums: Sequence[float] | np.ndarray) -> float:
    """Return the first of two counts to the second, a mean or a rate; 0 of nothing."""
    return float(sums[0] / sums[1]) if sums[1] else 0.0


def share(sums: np.ndarray) -> float:
    """Return the share of right answers, where an example counts (1, 1) if it is right, else (0, 1)."""
    return ratio(sums)


def f1(sums: np.ndarray) -> float:
    """Return F1 of how many answers are right, wrong and missed; 0 where nothing is there and nothing answered."""
    right, wrong, missed = sums[:3]
    return float(2 * right / total) if (total := 2 * right + wrong + missed) else 0.0


def interval(score: Callable[[np.ndarray], float], counts: Counts, extremes: np.ndarray | None = None) -> list[float]:
    """Return the 95% interval of a score: of shares Wilson's, of others the bootstrap's (`evaluate/significance.py`).

    F1 is one to one with the share of right answers among all that are right, wrong or missed, J: F1 = 2J/(1 + J).
    """
    if score is share:
        return share_interval(counts)
    if score is f1:
        found = share_interval(np.stack([counts[:, 0], counts[:, :3].sum(axis=1)], axis=1))
        return [float(2 * end / (1 + end)) for end in found]
    return bootstrap_interval(counts, score, extremes)


def paired(scoring: Scoring, first: Predictions, second: Predictions) -> dict[str, Any]:
    """Test whether two runs' predictions of the same examples differ by more than chance.

    Returns:
        test, metric, difference (first − second), ci95, p_value and n; see `evaluate/significance.py`; and unit, where
        n does not count what an evaluation's does.
    """
    test = paired_test(scoring.counts(first), scoring.counts(second), scoring.score)
    return test | {"metric": scoring.metric} | ({"unit": scoring.unit} if scoring.unit else {})

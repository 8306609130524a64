"""What a score is computed from: counts of each example, which add up.

Its paired test and its learning curve follow from it, whatever the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from glassformer.evaluate.significance import paired_bootstrap, paired_shares

Predictions = Sequence[dict[str, Any]]
"""The rows of `predictions.jsonl`: what was answered, and what is true."""


@dataclass(frozen=True)
class Scoring:
    """A score of many examples.

    Attributes:
        metric: its name.
        counts: stored predictions → (N, k), what is counted of each of them, or of each block of a text.
        score: the sum of such rows → the score.
        best: the best possible score.
        sign: 1 where higher scores are better, −1 where lower ones are.
        unit: what the rows are, where that is not what `n` of an evaluation counts; "" where it is.
        settings: what else the score depends on; scores of other settings do not compare.
    """

    metric: str
    counts: Callable[[Predictions], Float[np.ndarray, "N k"]]
    score: Callable[[np.ndarray], float]
    best: float = 1.0
    sign: int = 1
    unit: str = ""
    settings: str = ""


Counted = tuple[Scoring, Float[np.ndarray, "N k"]]
"""What is counted of a split's examples, and the counts of one run."""


def ratio(sums: np.ndarray) -> float:
    """Return the first of two counts to the second: a mean or a rate."""
    return float(sums[0] / sums[1])


def share(sums: np.ndarray) -> float:
    """Return the share of right answers, where an example counts (1, 1) if it is right, else (0, 1)."""
    return ratio(sums)


def paired(scoring: Scoring, first: Predictions, second: Predictions) -> dict[str, Any]:
    """Ask whether two runs' predictions of the same examples differ by more than chance.

    Shares of right answers by McNemar's test, other scores by the paired bootstrap.

    Returns:
        test, metric, difference (first − second), ci95, p_value and n; see `evaluate/significance.py`; and unit, where
        n does not count what an evaluation's does.
    """
    one, two = scoring.counts(first), scoring.counts(second)
    if scoring.score is share:
        test = paired_shares(one[:, 0] == 1, two[:, 0] == 1)
    else:
        test = paired_bootstrap(one, two, scoring.score)
    return test | {"metric": scoring.metric} | ({"unit": scoring.unit} if scoring.unit else {})

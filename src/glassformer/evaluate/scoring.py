"""What a score is computed from: counts of each example, which add up; how sure it is; whether two runs differ.

Nothing here knows a task: an interval and a paired test follow from the counts. Intervals of shares are Wilson's, of
other scores the bootstrap's. On the same examples a paired test sees more than two intervals that overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

Predictions = Sequence[dict[str, Any]]
"""The rows of `predictions.jsonl`: what was answered, and what is true."""
Counts = Float[np.ndarray, "N k"]
Score = Callable[[np.ndarray], float]
"""Summed counts → a score."""
Z95 = 1.959963984540054
"""The normal quantile that leaves 2.5% on either side."""
RARE = (0.0512933, 0.3553615, 0.8176914)
"""Rates at which a Poisson variable is 1, 2 or 3 and more with a probability of 5%: half of the χ² quantiles."""
CHANCE = 0.05
"""The p-value below which a difference is called more than chance."""
BOOTSTRAP_SEED = 12345
"""sacreBLEU's default seed, so that an interval is the same on every machine and every day."""
N_BOOTSTRAP = 1000
"""Draws of a bootstrap, as in Koehn 2004."""


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


def wilson_interval(n_right: float, n: float) -> list[float]:
    """Return the 95% interval of n_right successes in n trials by Wilson (1927); [0, 1] when nothing was tried.

    Unlike the textbook ±1.96·√(p(1−p)/n) it stays within [0, 1] and keeps a width at 0% and 100%. Near these, where it
    covers too seldom, its inner bound is that of the Poisson distribution (Brown, Cai and DasGupta 2001, 4.1.1).
    """
    if n == 0:
        return [0.0, 1.0]
    rate, z2 = n_right / n, Z95**2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # At 0% and 100% the bound is exact; rounding would leave it a hair off.
    low, high = 0.0 if n_right == 0 else centre - half, 1.0 if n_right == n else centre + half
    few = RARE[: 2 if n <= 50 else 3]
    if 1 <= n_right < min(n, 1 + len(few)):
        low = min(low, few[int(n_right) - 1] / n)
    if 1 <= n - n_right < min(n, 1 + len(few)):
        high = max(high, 1 - few[int(n - n_right) - 1] / n)
    return [low, high]


def share_interval(counts: Float[np.ndarray, "N 2"]) -> list[float]:
    """Return the 95% interval of a share of decisions: Wilson's, of as many as their texts are worth.

    A row holds the right decisions of a text and all of them. Decisions on one text err together; their number is
    divided by the design effect (Kish 1965): the variance over texts of the share to that of independent decisions.
    """
    right, n = counts.sum(axis=0)
    variance = 0.0
    if 0 < right < n and len(counts) > 1:
        residuals = counts[:, 0] - right / n * counts[:, 1]
        variance = float(residuals @ residuals) * len(counts) / (len(counts) - 1) / (right * (1 - right / n))
    effect = max(1.0, variance)
    return wilson_interval(right / effect, n / effect)


def resampled_sums(statistics: np.ndarray, n_resamples: int) -> np.ndarray:
    """Draw the examples again with replacement, many times, and sum their statistics each time.

    A corpus score such as BLEU is a function of summed counts, so it is enough to resample the counts. To compare two
    systems, put their columns side by side: both are then drawn on the same examples. `statistics` (n, k) has a row an
    example; the sums are (n_resamples, k) in float64.
    """
    rng, n = np.random.default_rng(BOOTSTRAP_SEED), len(statistics)
    statistics = np.asarray(statistics, dtype=np.float64)
    # One draw at a time: memory stays at one copy of the test set.
    return np.stack([statistics[rng.integers(n, size=n)].sum(axis=0) for _ in range(n_resamples)])


def percentile_interval(values: np.ndarray) -> list[float]:
    """Return the middle 95% of resampled scores as [low, high]."""
    return np.percentile(values, [2.5, 97.5]).tolist()


def bootstrap_interval(
    counts: np.ndarray, score: Score, extremes: np.ndarray | None = None, n_resamples: int = N_BOOTSTRAP
) -> list[float]:
    """Return the 95% interval of a score of summed counts, (N, k), by the bootstrap over its examples.

    `extremes`, (2, k), are the counts of the best and of the worst possible example. The interval then reaches over
    both that of the examples with the best one and that with the worst one: that of examples that are all right would
    have no width.
    """
    if extremes is None:
        return percentile_interval(np.array([score(sums) for sums in resampled_sums(counts, n_resamples)]))
    sides = np.hstack([np.concatenate([counts, each[None]]) for each in extremes])
    sums = resampled_sums(sides, n_resamples).reshape(n_resamples, 2, -1)
    ends = np.array([percentile_interval(np.array([score(row) for row in sums[:, side]])) for side in (0, 1)])
    return [float(ends.min()), float(ends.max())]


def interval(score: Callable[[np.ndarray], float], counts: Counts, extremes: np.ndarray | None = None) -> list[float]:
    """Return the 95% interval of a score: of shares Wilson's, of others the bootstrap's.

    F1 is one to one with the share of right answers among all that are right, wrong or missed, J: F1 = 2J/(1 + J).
    """
    if score is share:
        return share_interval(counts)
    if score is f1:
        found = share_interval(np.stack([counts[:, 0], counts[:, :3].sum(axis=1)], axis=1))
        return [float(2 * end / (1 + end)) for end in found]
    return bootstrap_interval(counts, score, extremes)


def paired_test(first: np.ndarray, second: np.ndarray, score: Score, n_draws: int = N_BOOTSTRAP) -> dict[str, Any]:
    """Test whether two systems' scores on the same examples differ by more than chance.

    `first` and `second` (n, k) are counts of each example, or of each block of a text; `score` makes a score of the sum
    of such rows. The p-value is by approximate randomization (Noreen 1989; Riezler and Maxwell 2005): if the systems
    were alike, the counts of an example could as well be the other's, so they are exchanged for about half of the
    examples, many times. Of shares of right answers that is McNemar's test. One is added above and below, so that no
    number of draws can claim p = 0. The interval is by the paired bootstrap (Koehn 2004).

    Returns:
        test; difference (first − second), its 95% interval and two-sided p_value; n.
    """

    def difference_of(one: np.ndarray, two: np.ndarray) -> float:
        return score(one) - score(two)

    rng, apart = np.random.default_rng(BOOTSTRAP_SEED), second - first
    one, two = first.sum(axis=0), second.sum(axis=0)
    difference = difference_of(one, two)
    moved = (apart[rng.random(len(apart)) < 0.5].sum(axis=0) for _ in range(n_draws))
    exchanged = np.abs([difference_of(one + each, two - each) for each in moved])
    n_larger = int(np.sum(exchanged >= (1 - 1e-9) * abs(difference)))  # equal ones may round apart
    sums = resampled_sums(np.hstack([first, second]), n_draws)
    resampled = np.array([difference_of(*np.split(each, 2)) for each in sums])
    found = {"test": "approximate randomization", "difference": difference, "ci95": percentile_interval(resampled)}
    return found | {"p_value": (n_larger + 1) / (n_draws + 1), "n": len(first)}


def paired(scoring: Scoring, first: Predictions, second: Predictions) -> dict[str, Any]:
    """Test whether two runs' predictions of the same examples differ by more than chance.

    Returns:
        test, metric, difference (first − second), ci95, p_value and n; and unit, where
        n does not count what an evaluation's does.
    """
    test = paired_test(scoring.counts(first), scoring.counts(second), scoring.score)
    return test | {"metric": scoring.metric} | ({"unit": scoring.unit} if scoring.unit else {})

"""How sure a score is, and whether two runs differ by more than chance. Nothing here knows a task.

Intervals of shares are Wilson's, of other scores the bootstrap's. On the same examples a paired test sees more than two
intervals that overlap: McNemar's for shares of right answers, the paired bootstrap for scores of a whole corpus.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

Score = Callable[[np.ndarray], float]
"""Summed counts → a score."""
Test = dict[str, Any]
"""A test of a difference, as JSON: test, difference (first − second), ci95, p_value, n."""
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


def wilson_interval(n_right: float, n: float) -> list[float]:
    """Return the 95% interval of n_right successes in n trials by Wilson (1927); [0, 1] when nothing was tried.

    Unlike the textbook ±1.96·√(p(1−p)/n) it stays within [0, 1] and keeps a width at 0% and 100%. Near these, where it
    covers too seldom, its inner bound is that of the Poisson distribution (Brown, Cai and DasGupta 2001, 4.1.1).
    """
    if n == 0:
        return [0.0, 1.0]
    share, z2 = n_right / n, Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
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


def mcnemar(only_first: int, only_second: int) -> float:
    """Return McNemar's exact two-sided p-value of two classifiers on the same examples.

    Only examples that one alone gets right say anything: fair coins, if the two were equally good.
    """
    from scipy.stats import binomtest

    n = only_first + only_second
    return float(binomtest(only_first, n).pvalue) if n else 1.0


def paired_share_interval(only_first: int, only_second: int, n: int) -> list[float]:
    """Return the 95% interval of (first − second) accuracy on the same n examples, by the normal law."""
    difference = (only_first - only_second) / n
    variance = (only_first + only_second) / n - difference**2
    half = Z95 * math.sqrt(max(variance, 0.0) / n)
    return [max(-1.0, difference - half), min(1.0, difference + half)]


def paired_shares(first: np.ndarray, second: np.ndarray) -> Test:
    """Test whether the accuracies of two systems differ, by whether each has an example right, (N,) of bool.

    Returns:
        test; difference (first − second share right), its 95% interval and McNemar's p_value; n.
    """
    only_first, only_second, n = int((first & ~second).sum()), int((second & ~first).sum()), len(first)
    interval, p_value = paired_share_interval(only_first, only_second, n), mcnemar(only_first, only_second)
    return _tested("McNemar, exact", (only_first - only_second) / n, interval, p_value, n)


def _tested(test: str, difference: float, interval: list[float], p_value: float, n: int) -> Test:
    return {"test": test, "difference": difference, "ci95": interval, "p_value": p_value, "n": n}


def paired_bootstrap(first: np.ndarray, second: np.ndarray, score: Score, n_bootstrap: int = N_BOOTSTRAP) -> Test:
    """Test whether two systems' corpus scores differ by more than chance (Koehn 2004).

    `first` and `second` (n, k) are counts of each example, or of each block of a text; `score` makes a score of the sum
    of such rows. Each resample has the same examples for both systems.

    Returns:
        test; difference (first − second), its 95% interval and two-sided p_value; n.
    """

    def difference_of(sums: np.ndarray) -> float:
        one, two = np.split(sums, 2)
        return score(one) - score(two)

    counts = np.hstack([first, second])
    difference = difference_of(counts.sum(axis=0))
    resampled = np.array([difference_of(sums) for sums in resampled_sums(counts, n_bootstrap)])
    interval, p_value = percentile_interval(resampled), bootstrap_p_value(difference, resampled)
    return _tested("paired bootstrap", difference, interval, p_value, len(first))


def bootstrap_p_value(difference: float, resampled: np.ndarray) -> float:
    """Return how often chance alone makes a difference at least as large, two-sided.

    The resampled differences, moved to mean zero, stand for "no true difference" (Riezler and Maxwell
    2005); one is added above and below so that no finite number of draws can claim p = 0.
    """
    extreme = int(np.sum(np.abs(resampled - resampled.mean()) >= abs(difference)))
    return (extreme + 1) / (len(resampled) + 1)

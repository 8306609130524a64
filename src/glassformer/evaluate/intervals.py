"""How sure a score is: the three statistics behind every interval and comparison of the project.

Wilson's interval for a share, the bootstrap for a corpus score, McNemar's test for two classifiers on the
same examples. Nothing here knows a task; the files beside it decide what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Z95 = 1.959963984540054
"""The normal quantile that leaves 2.5% on either side."""
BOOTSTRAP_SEED = 12345
"""sacreBLEU's default seed, so that an interval is the same on every machine and every day."""


def wilson_interval(n_right: int, n: int) -> list[float]:
    """Return the 95% interval of n_right successes in n trials by Wilson (1927); [0, 1] when nothing was tried.

    Unlike the textbook ±1.96·√(p(1−p)/n) it stays within [0, 1] and keeps a width at 0% and 100%.
    """
    if n == 0:
        return [0.0, 1.0]
    share, z2 = n_right / n, Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # At 0% and 100% the bound is exact; rounding would leave it a hair off.
    return [0.0 if n_right == 0 else centre - half, 1.0 if n_right == n else centre + half]


def resampled_sums(statistics: np.ndarray, n_resamples: int, seed: int = BOOTSTRAP_SEED) -> np.ndarray:
    """Draw the examples again with replacement, many times, and sum their statistics each time.

    A corpus score such as BLEU is a function of summed counts, so it is enough to resample the counts.
    To compare two systems, put their columns side by side: both are then drawn on the same examples.

    Args:
        statistics: (n, k), one row an example.
        n_resamples: how many times to draw.
        seed: of the draw.

    Returns:
        (n_resamples, k) sums in float64.
    """
    rng, n = np.random.default_rng(seed), len(statistics)
    statistics = np.asarray(statistics, dtype=np.float64)
    # One draw at a time: memory stays at one copy of the test set.
    sums = [statistics[rng.integers(n, size=n)].sum(axis=0) for _ in range(n_resamples)]
    return np.stack(sums)


def percentile_interval(values: np.ndarray) -> list[float]:
    """Return the middle 95% of resampled scores as [low, high]."""
    return np.percentile(values, [2.5, 97.5]).tolist()


def bootstrap_p_value(difference: float, resampled: np.ndarray) -> float:
    """Return how often chance alone makes a difference at least as large, two-sided.

    The resampled differences, moved to mean zero, stand for "no true difference" (Riezler and Maxwell
    2005); one is added above and below so that no finite number of draws can claim p = 0.
    """
    extreme = int(np.sum(np.abs(resampled - resampled.mean()) >= abs(difference)))
    return (extreme + 1) / (len(resampled) + 1)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return McNemar's exact two-sided p-value of two classifiers on the same examples.

    Only examples that one alone gets right say anything: fair coins, if the two were equally good.
    """
    n, fewer = only_first + only_second, min(only_first, only_second)
    ways, term = 0, 1
    for k in range(fewer + 1):  # exact integers: no underflow however many examples disagree
        ways += term
        term = term * (n - k) // (k + 1)
    return min(1.0, 2 * ways / 2**n)


def paired_share_interval(only_first: int, only_second: int, n: int) -> list[float]:
    """Return the 95% interval of (first − second) accuracy on the same n examples, by the normal law."""
    difference = (only_first - only_second) / n
    variance = (only_first + only_second) / n - difference**2
    half = Z95 * math.sqrt(max(variance, 0.0) / n)
    return [max(-1.0, difference - half), min(1.0, difference + half)]


def paired_shares(first: Sequence[str], second: Sequence[str], truth: Sequence[str]) -> dict[str, Any]:
    """Ask whether two systems are right about different shares of the same examples.

    Args:
        first, second: their answers.
        truth: what is right, in the same order.

    Returns:
        test; difference (first − second share right), its 95% interval and McNemar's p_value; n.
    """
    triples = list(zip(first, second, truth, strict=True))
    only_first, only_second = sum(a == t != b for a, b, t in triples), sum(b == t != a for a, b, t in triples)
    return {
        "test": "McNemar, exact",
        "difference": (only_first - only_second) / len(triples),
        "ci95": paired_share_interval(only_first, only_second, len(triples)),
        "p_value": mcnemar(only_first, only_second),
        "n": len(triples),
    }

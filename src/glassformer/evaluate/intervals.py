"""How sure a score is: Wilson's interval for a share, the bootstrap for a corpus score.

Nothing here knows a task; the files beside it decide what is counted. Whether two runs differ is
`significance.py`'s question.
"""

from __future__ import annotations

import math

import numpy as np

Z95 = 1.959963984540054
"""The normal quantile that leaves 2.5% on either side."""
FEW = 30
"""Examples below which an interval is so wide that it must be told with the score."""
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

"""A score as a function of the number of training examples, and what twice as many would give.

The error falls as a power of the number of examples, to a limit: score(n) = a − b·n^(−c) (Figueroa et al. 2012;
Hestness et al. 2017). Three sizes do not determine c, so that a and b are fitted by least squares with c fixed
at the 1/2 of a sample's error, and the interval has any c from LEAST to MOST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.evaluate.scoring import Counted
from glassformer.evaluate.significance import BOOTSTRAP_SEED, N_BOOTSTRAP, percentile_interval

EXPONENT, LEAST, MOST = 0.5, 0.1, 1.0
"""The exponent of the estimate, and the bounds of those of the interval."""


def power_law(sizes: Sequence[int], scores: Sequence[float], exponent: float = EXPONENT) -> tuple[float, float]:
    """Return a and b of the least squares; b is not negative, as more data does no harm in the mean."""
    x, y = np.asarray(sizes, float) ** -exponent, np.asarray(scores, float)
    b = -np.sum((x - x.mean()) * (y - y.mean())) / np.sum((x - x.mean()) ** 2)
    b = max(0.0, float(b))
    return float(y.mean() + b * x.mean()), b


def expected(sizes: Sequence[int], scores: Sequence[float], n: int, best: float, exponent: float = EXPONENT) -> float:
    """Return the score that the power law gives for n examples, at most the best possible."""
    a, b = power_law(sizes, scores, exponent)
    return min(best, a - b * n**-exponent)


def forecast(sizes: Sequence[int], runs: Sequence[Sequence[Counted]], n: int) -> dict[str, Any]:
    """Return the score expected of n examples, and how much more that is than of the largest size.

    Each draw of the bootstrap takes the validation examples again with replacement, the same for all runs, of each size
    one of its runs, and an exponent within its bounds.

    Args:
        sizes: numbers of training examples.
        runs: the counts of the runs of each size, all on the same examples.
        n: the number of examples that the forecast is for.

    Where lower scores are better, the law is fitted to their negatives; what is returned has the sign of the metric.

    Returns:
        metric, n, score and ci95, gain and gain_ci95; `interval`, what these may be called: where a size has one run
        they leave out what another seed would give, and hold less than 95%; `points`, n and the mean score and its ci95
        of each size; and the law: a, b, c.
    """
    rng, (scoring, counts) = np.random.default_rng(BOOTSTRAP_SEED), runs[0][0]
    sign = scoring.sign

    def score_of(counts: np.ndarray) -> float:
        return sign * scoring.score(counts.sum(axis=0))

    def gained(scores: Sequence[float], exponent: float) -> tuple[float, float]:
        score, now = (expected(sizes, scores, size, scoring.best, exponent) for size in (n, max(sizes)))
        return score, score - now

    draws = list[list[float]]()
    for _ in range(N_BOOTSTRAP):
        index = rng.integers(len(counts), size=len(counts))
        scores = [score_of(of[int(rng.integers(len(of)))][1][index]) for of in runs]
        draws.append([*gained(scores, rng.uniform(LEAST, MOST)), *scores])
    means = [float(np.mean([score_of(counts) for _, counts in of])) for of in runs]
    (a, b), (score, gain) = power_law(sizes, means), gained(means, EXPONENT)
    of_score, of_gain, *spread = (percentile_interval(np.array(column)) for column in zip(*draws, strict=True))
    return {
        "metric": scoring.metric,
        "interval": "95% interval" if min(map(len, runs)) > 1 else "range with one seed",
        "n": n,
        "score": sign * score,
        "ci95": _signed(of_score, sign),
        "gain": gain,
        "gain_ci95": of_gain,
        "points": [
            {"n": size, "score": sign * mean, "ci95": _signed(between, sign), "runs": len(of)}
            for size, mean, between, of in zip(sizes, means, spread, runs, strict=True)
        ],
        "law": {"a": sign * a, "b": sign * b, "c": EXPONENT},
    }


def _signed(interval: Sequence[float], sign: int) -> list[float]:
    """Return an interval of scores multiplied by 1 or −1."""
    return sorted(sign * end for end in interval)

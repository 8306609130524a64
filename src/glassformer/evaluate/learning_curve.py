"""A score as a function of the number of training examples, and what twice as many would give.

The error falls as a power of the number of examples, to a limit: score(n) = a − b·n^(−c) (Figueroa et al. 2012;
Hestness et al. 2017). Three sizes do not determine c, so that a and b are fitted by least squares with c fixed
at the 1/2 of a sample's error, and the interval has any c from LEAST to MOST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from glassformer.evaluate.significance import BOOTSTRAP_SEED, percentile_interval

EXPONENT, LEAST, MOST = 0.5, 0.1, 1.0
"""The exponent of the estimate, and the bounds of those of the interval."""
N_BOOTSTRAP = 1000


@dataclass(frozen=True)
class Counts:
    """What the scores of a validation split are computed from.

    Attributes:
        rows: (N, k) counts of each example.
        score: a score of the sum of such rows.
        best: the highest possible score.
        metric: its name.
        sign: 1 where higher scores are better, −1 where lower ones are.
    """

    rows: Float[np.ndarray, "N k"]
    score: Callable[[np.ndarray], float]
    best: float
    metric: str
    sign: int = 1


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


def forecast(sizes: Sequence[int], runs: Sequence[Sequence[Counts]], n: int) -> dict[str, Any]:
    """Return the score expected of n examples, and how much more that is than of the largest size.

    Each draw of the bootstrap takes the validation examples again with replacement, the same for all runs, of each size
    one of its runs, and an exponent within its bounds.

    Args:
        sizes: numbers of training examples.
        runs: the counts of the runs of each size, all on the same examples.
        n: the number of examples that the forecast is for.

    Where lower scores are better, the law is fitted to their negatives; what is returned has the sign of the metric.

    Returns:
        metric, n, score and ci95, gain and gain_ci95; `points`, n and the mean score and its ci95 of each size; and the
        law: a, b, c.
    """
    one, rng = runs[0][0], np.random.default_rng(BOOTSTRAP_SEED)
    draws, points = list[tuple[float, float]](), list[list[float]]()
    for _ in range(N_BOOTSTRAP):
        index = rng.integers(len(one.rows), size=len(one.rows))
        drawn = [of[int(rng.integers(len(of)))] for of in runs]
        scores, exponent = (
            [each.sign * each.score(each.rows[index].sum(axis=0)) for each in drawn],
            rng.uniform(LEAST, MOST),
        )
        ends = [expected(sizes, scores, size, one.best, exponent) for size in (n, max(sizes))]
        draws.append((ends[0], ends[0] - ends[1]))
        points.append(scores)
    means = [float(np.mean([each.sign * each.score(each.rows.sum(axis=0)) for each in of])) for of in runs]
    (a, b), score = power_law(sizes, means), expected(sizes, means, n, one.best)
    intervals = [percentile_interval(np.array(column)) for column in zip(*draws, strict=True)]
    spread = [percentile_interval(np.array(column)) for column in zip(*points, strict=True)]
    return {
        "metric": one.metric,
        "n": n,
        "score": one.sign * score,
        "ci95": _signed(intervals[0], one.sign),
        "gain": score - expected(sizes, means, max(sizes), one.best),
        "gain_ci95": intervals[1],
        "points": [
            {"n": size, "score": one.sign * mean, "ci95": _signed(between, one.sign), "runs": len(of)}
            for size, mean, between, of in zip(sizes, means, spread, runs, strict=True)
        ],
        "law": {"a": one.sign * a, "b": one.sign * b, "c": EXPONENT},
    }


def _signed(interval: Sequence[float], sign: int) -> list[float]:
    """Return an interval of scores multiplied by 1 or −1."""
    return sorted(sign * end for end in interval)

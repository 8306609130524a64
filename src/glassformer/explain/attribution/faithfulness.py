"""Measure how faithful a ranking of words is to the model: erase its top words, or keep only them.

Comprehensiveness and sufficiency (DeYoung et al. 2020, "ERASER", section 4.2) compared with those of random rankings.
They are in the units of the value function, not in probabilities as in the paper, since those saturate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from glassformer.explain.attribution.value_function import ValueFunction

SHARES = (0.1, 0.2, 0.5)
"""Shares of the words that are erased or kept; the drops are averaged."""
MAX_RANDOM, MIN_RANDOM = 200, 100
RANDOM_TOKENS = 160_000
"""Maximum tokens evaluated for random rankings: texts of more than 130 tokens get fewer, but at least 100."""
SEED = 0


@dataclass(frozen=True)
class Faithfulness:
    """A mean drop, compared with that of random rankings."""

    value: float
    random_mean: float
    random_low: float
    """2.5th percentile of random rankings."""
    random_high: float
    """97.5th percentile of random rankings."""
    beats_random: bool
    """The value is better than that interval."""


def mean_drops(value_fn: ValueFunction, rankings: Int[np.ndarray, "R W"]) -> Float[np.ndarray, "R 2"]:
    """Return comprehensiveness and sufficiency of each ranking (word numbers, best first).

    Comprehensiveness is the mean drop when the top 10%, 20% and 50% of the words are erased (a good ranking: large);
    sufficiency is the mean drop when only they are kept (a good ranking: small). At least one word is erased or kept.
    """
    n_rankings, n = rankings.shape
    if n == 0:
        return np.zeros((n_rankings, 2))
    # (R, W): the rank of each word.
    rank = np.argsort(rankings, axis=1)
    top = [rank < n_top for n_top in _share_sizes(n)]
    erased = np.concatenate([np.zeros((1, n), dtype=bool), *top, *(~t for t in top)])
    values = value_fn.values(erased)
    return (values[0] - values[1:].reshape(2, len(SHARES), n_rankings)).mean(axis=1).T


def _share_sizes(n_words: int) -> list[int]:
    """Return the number of words of each share, at least one."""
    # Less 1e-9, as 10% of 30 is 3.0000000000000004.
    return [max(1, math.ceil(share * n_words - 1e-9)) for share in SHARES]


def n_single_word_shares(n_words: int) -> int:
    """Return the number of shares of one word, for which comprehensiveness repeats leave-one-out."""
    return _share_sizes(n_words).count(1) if n_words else 0


def random_mean_drops(value_fn: ValueFunction, n_rankings: int | None = None) -> Float[np.ndarray, "R 2"]:
    """Return `mean_drops` of random rankings from a fixed seed, by default 200, or down to 100 for a long text."""
    if n_rankings is None:
        affordable = RANDOM_TOKENS // (2 * len(SHARES) * max(1, value_fn.n_tokens))
        n_rankings = min(MAX_RANDOM, max(MIN_RANDOM, affordable))
    rng = np.random.default_rng(SEED)
    rankings = [rng.permutation(value_fn.n_words) for _ in range(n_rankings)]
    return mean_drops(value_fn, np.array(rankings, dtype=np.int64).reshape(n_rankings, value_fn.n_words))


def faithfulness(
    value_fn: ValueFunction, scores: Float[np.ndarray, " W"], random: Float[np.ndarray, "R 2"]
) -> tuple[Faithfulness, Faithfulness]:
    """Return comprehensiveness and sufficiency of the ranking by these scores, largest first."""
    ranking = np.argsort(-scores, kind="stable")
    value = mean_drops(value_fn, ranking[None])[0]
    low, high = np.percentile(random, [2.5, 97.5], axis=0)
    beats = (value[0] > high[0], value[1] < low[1])
    mean = random.mean(axis=0)
    first, second = (
        Faithfulness(float(value[i]), float(mean[i]), float(low[i]), float(high[i]), bool(beats[i])) for i in range(2)
    )
    return first, second

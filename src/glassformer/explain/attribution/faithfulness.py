"""Is a ranking of words faithful to the model? Erase its best words, keep only them, and compare with chance.

Comprehensiveness and sufficiency (DeYoung et al. 2020, "ERASER", section 4.2), here in the units of the
question, not in probabilities, which saturate. No ranking is made here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from glassformer.explain.attribution.value_function import ValueFunction

SHARES = (0.1, 0.2, 0.5)
"""Shares of the words that are erased, or kept; the falls are averaged."""
N_RANDOM, FEWEST_RANDOM = 200, 100
RANDOM_TOKENS = 160_000
"""Tokens the random rankings may cost: texts beyond 130 tokens get fewer of them, never below 100."""
SEED = 0


@dataclass(frozen=True)
class Faithfulness:
    """A mean fall beside that of random rankings."""

    value: float
    random_mean: float
    random_low: float
    """Where the middle 95% of random rankings begin."""
    random_high: float
    """Where they end."""
    beats_random: bool
    """The value lies beyond that band, on the good side."""


def falls(question: ValueFunction, rankings: Int[np.ndarray, "R W"]) -> Float[np.ndarray, "R 2"]:
    """Comprehensiveness and sufficiency of each ranking (word numbers, best first).

    Comprehensiveness is the mean fall when the best 10%, 20% and 50% of the words are erased (a good
    ranking: large); sufficiency the mean fall when only they are kept (a good ranking: small). At least one
    word is erased or kept.
    """
    n_rankings, n = rankings.shape
    if n == 0:
        return np.zeros((n_rankings, 2))
    place = np.argsort(rankings, axis=1)  # (R, W): where in the ranking each word stands
    best = [place < n_best for n_best in _numbers(n)]
    erased = np.concatenate([np.zeros((1, n), dtype=bool), *best, *(~b for b in best)])
    values = question.values(erased)
    return (values[0] - values[1:].reshape(2, len(SHARES), n_rankings)).mean(axis=1).T


def _numbers(n_words: int) -> list[int]:
    """How many words each share is: at least one."""
    return [max(1, math.ceil(share * n_words - 1e-9)) for share in SHARES]  # 10% of 30 is 3.0000000000000004


def single_words(n_words: int) -> int:
    """How many of the shares are a single word: comprehensiveness then asks there what erasing one word asked."""
    return _numbers(n_words).count(1) if n_words else 0


def random_falls(question: ValueFunction, n_rankings: int | None = None) -> Float[np.ndarray, "R 2"]:
    """`falls` of random rankings, always the same ones; fewer, but 100 at least, where the text is long."""
    if n_rankings is None:
        affordable = RANDOM_TOKENS // (2 * len(SHARES) * max(1, question.n_tokens))
        n_rankings = min(N_RANDOM, max(FEWEST_RANDOM, affordable))
    rng = np.random.default_rng(SEED)
    rankings = [rng.permutation(question.n_words) for _ in range(n_rankings)]
    return falls(question, np.array(rankings, dtype=np.int64).reshape(n_rankings, question.n_words))


def faithfulness(
    question: ValueFunction, scores: Float[np.ndarray, " W"], random: Float[np.ndarray, "R 2"]
) -> tuple[Faithfulness, Faithfulness]:
    """Comprehensiveness and sufficiency of the ranking by these scores, most supporting word first.

    Args:
        question: what was asked.
        scores: one number a word.
        random: `random_falls` of the same question.
    """
    ranking = np.argsort(-scores, kind="stable")
    value = falls(question, ranking[None])[0]
    low, high = np.percentile(random, [2.5, 97.5], axis=0)
    beats = (value[0] > high[0], value[1] < low[1])
    mean = random.mean(axis=0)
    first, second = (
        Faithfulness(float(value[i]), float(mean[i]), float(low[i]), float(high[i]), bool(beats[i]))
        for i in range(2)
    )
    return first, second

"""Numbers that do not fit their texts, by out-of-fold predictions of a ridge regression.

The model of errors is that of wrong labels: a share e of the numbers was replaced by those of other examples. A number
whose distance from its prediction has the density f among all distances, and the density g among all numbers, is wrong
with probability e g / (e g + (1 − e) f). f is a Student distribution, fitted to the distances, so that data with heavy
tails is not full of findings; g counts the numbers near by, the number itself among them, so that one that stands far
from all others, as after a slip of the decimal point, is no less probable than any other wrong one. e is fitted by
expectation maximisation between the bounds of wrong labels. `benchmarks/audit.py` measures what is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from glassformer.data.datasets.numbers import mean_and_sd
from glassformer.evaluate.audit.features import OfTexts
from glassformer.evaluate.audit.label_errors import CHUNK, FOLDS, NO_WORDS, SHARES, stratified_folds
from glassformer.utils.formatting import percent

LISTED_FROM = 0.4
"""Probability from which a number is listed as wrong, chosen on seed 0 of `benchmarks/audit.py`."""
MOST_LISTED = 0.1
"""Share of the numbers from which what is far is no error: they may range over many orders of magnitude."""
FEWEST = 50
"""Examples from which numbers are judged."""
FENCES = 3.0
"""Interquartile ranges beyond the quartiles from which numbers are fitted as if they were nearer."""
FARTHEST = 1e6
"""Standard deviations from the mean beyond which a number counts as so far, so that no square overflows."""
ROUNDS = 20
"""Steps of expectation maximisation."""
LEAST_DEGREES = 1.0
"""Degrees of freedom of the Student distribution at least: with fewer, a slip of the decimal point would be usual."""

Numbers = Float[np.ndarray, " N"]


class NumberJudgement(NamedTuple):
    """What the model thinks of the numbers.

    Attributes:
        score: (N,) probability that the number is wrong.
        predicted: (N,) the prediction.
        listed: (N,) whether the number is listed as a probable error.
        facts: R² on the numbers as they were fitted, assumed share of errors, penalty.
    """

    score: Numbers
    predicted: Numbers
    listed: Bool[np.ndarray, " N"]
    facts: dict[str, float]


def judge_numbers(
    features_of: Callable[[], OfTexts], numbers: Numbers, groups: Int[np.ndarray, " N"]
) -> NumberJudgement | str:
    """Return which numbers are probably wrong, or why that cannot be judged; the arguments are of `judge_labels`."""
    if len(numbers) < FEWEST:
        return f"{FEWEST} numbers are needed to judge one, and there are {len(numbers)}"
    if len(np.unique(groups)) < FEWEST:
        return f"{FEWEST} different texts are needed to judge a number, and there are {len(np.unique(groups))}"
    if numbers.min() == numbers.max():
        return "all numbers are equal"
    mean, sd = mean_and_sd(np.clip(numbers, *fences(numbers)))
    y = np.clip((numbers - mean) / sd, -FARTHEST, FARTHEST)
    try:
        features = features_of()
    except ValueError:  # "empty vocabulary"
        return NO_WORDS
    folds = stratified_folds(np.zeros(len(y), dtype=np.int64), groups)
    fitted = np.clip(y, *fences(y))
    predicted, penalty = _out_of_fold(features, fitted, folds)
    r2 = 1 - float(np.square(fitted - predicted).sum() / np.square(fitted - fitted.mean()).sum())
    if r2 <= 0:  # the texts say nothing about the numbers, which are compared with one another alone
        predicted = np.full(len(y), np.median(fitted))
    score, share = wrong_numbers(y, predicted)
    facts = {"r2": r2, "share": share, "penalty": penalty}
    if (listed := score >= LISTED_FROM).mean() > MOST_LISTED:
        return f"{percent(float(listed.mean()))} of the numbers are far from their predictions; try their logarithms"
    return NumberJudgement(score, mean + sd * predicted, listed, facts)


def wrong_numbers(y: Numbers, predicted: Numbers) -> tuple[Numbers, float]:
    """Return the probability that each number is wrong, and the share of wrong numbers."""
    from scipy.stats import t

    distances = y - predicted
    median = max(float(np.median(np.abs(distances))), 1e-9)
    degrees, _, scale = t.fit(distances, 3.0, floc=0.0, scale=median)
    usual = t.pdf(distances, max(degrees, LEAST_DEGREES), scale=max(scale, 1e-9))
    replaced, share = densities(y), SHARES[1]

    def at(share: float) -> Numbers:
        wrong = share * replaced
        return wrong / np.maximum(wrong + (1 - share) * usual, 1e-300)

    for _ in range(ROUNDS):
        share = float(np.clip(at(share).mean(), *SHARES))
    return at(share), share


def fences(y: Numbers) -> tuple[float, float]:
    """Return limits beyond which numbers are fitted as if they were these: a slip of the decimal point bends no line.

    They are `FENCES` interquartile ranges beyond the quartiles, or least and largest number where that range is 0.
    """
    low, high = np.quantile(y, [0.25, 0.75])
    reach = FENCES * (high - low) or np.inf
    return max(float(low - reach), float(y.min())), min(float(high + reach), float(y.max()))


def densities(y: Numbers) -> Numbers:
    """Return the density of the numbers at each: how many are within a width of it, itself among them.

    The width is Silverman's for the smaller of standard deviation and interquartile range, and no less than half the
    median step between different numbers, so that whole numbers have the density of their frequency.
    """
    n, ordered, distinct = len(y), np.sort(y), np.unique(y)
    low, high = np.quantile(y, [0.25, 0.75])
    spread = min(float(y.std()), float(high - low) / 1.34) or float(y.std())
    width = max(0.9 * spread * n**-0.2, float(np.median(np.diff(distinct))) / 2)
    near = np.searchsorted(ordered, y + width, side="right") - np.searchsorted(ordered, y - width, side="left")
    return near / (2 * width * n)


def _out_of_fold(features: OfTexts, y: Numbers, folds: np.ndarray) -> tuple[Numbers, float]:
    """Return the prediction of each example by the model of the other folds, and the penalty."""
    from sklearn.linear_model import Ridge

    predicted, penalties = np.zeros(len(y)), features.ridge_penalties
    for fold in range(FOLDS):
        fitted = features.fitted[folds[features.fitted] != fold]
        x, held = features.rows(fitted), np.flatnonzero(folds == fold)
        models = [Ridge(alpha=alpha).fit(x, y[fitted]) for alpha in penalties]
        each = np.zeros((len(models), len(held)))
        for start in range(0, len(held), CHUNK):
            chunk = features.rows(held[start : start + CHUNK])
            each[:, start : start + CHUNK] = [model.predict(chunk) for model in models]
        best = int(np.abs(each - y[held]).mean(axis=1).argmin())
        predicted[held], penalties = each[best], penalties[best : best + 1] if fold == 0 else penalties
    return predicted, penalties[0]

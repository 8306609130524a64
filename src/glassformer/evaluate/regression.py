"""Scores of answers that are numbers, with bootstrap intervals, and the baselines that stand beside them.

Numbers may be of any size: they are scored from the mean of the true ones, in units of the largest distance from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from glassformer.errors import DataError
from glassformer.evaluate.classification import MAX_TRAIN, tfidf_features
from glassformer.evaluate.significance import BOOTSTRAP_SEED, N_BOOTSTRAP, percentile_interval

Numbers = Float[np.ndarray, " N"]
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Strengths of the L2 penalty of the bag of words, tried on a tenth of the training texts."""
FEWEST_HELD = 5
"""Training texts of that tenth from which the penalty is chosen by them."""


def score(truth: Numbers, predicted: Numbers) -> dict[str, Any]:
    """Score predicted numbers.

    Returns:
        n; mae and rmse, in the units of the numbers; r2; pearson and spearman; each with its 95% interval, a percentile
        bootstrap over examples. What is undefined, as a correlation with one constant, is None and has no interval.

    Raises:
        DataError: nothing to score, or a predicted number is NaN or infinite.
    """
    if len(truth) == 0:
        raise DataError("there are no examples to score", "check that the test file has rows")
    if not np.isfinite(predicted).all():
        hint = "the model has diverged; `glassformer doctor RUN` says what to change"
        raise DataError("the predicted numbers contain NaN or infinity", hint)
    samples = _Samples(truth, predicted)
    whole = samples.scores(np.ones(len(truth)))
    rng, n, draws = np.random.default_rng(BOOTSTRAP_SEED), len(truth), list[dict[str, float]]()
    for _ in range(N_BOOTSTRAP):
        draws.append(samples.scores(np.bincount(rng.integers(n, size=n), minlength=n).astype(float)))
    scores: dict[str, Any] = {"n": n}
    for name, value in whole.items():
        drawn = np.array([draw[name] for draw in draws])
        drawn = drawn[np.isfinite(drawn)]
        defined = bool(np.isfinite(value)) and len(drawn) > N_BOOTSTRAP / 2
        scores[name] = float(value) if np.isfinite(value) else None
        scores[f"{name}_ci95"] = percentile_interval(drawn) if defined else None
    return scores


def mean_absolute_error(truth: Numbers, predicted: Numbers) -> float:
    """Return the mean absolute error; 0 for no examples."""
    return float(np.abs(truth - predicted).mean()) if len(truth) else 0.0


class _Samples:
    """Two columns of numbers, scored under any weights: how often each example was drawn."""

    def __init__(self, truth: Numbers, predicted: Numbers) -> None:
        center = truth.mean() if np.isfinite(truth.mean()) else 0.0
        distances = np.abs([truth - center, predicted - center])
        self.unit = float(distances.max()) or 1.0
        self.truth, self.predicted = (truth - center) / self.unit, (predicted - center) / self.unit
        self.ranked = [np.unique(column, return_inverse=True)[1] for column in (self.truth, self.predicted)]

    def scores(self, weights: Float[np.ndarray, " N"]) -> dict[str, float]:
        """Return all scores; NaN where one is undefined."""
        n, error = weights.sum(), self.predicted - self.truth
        squared = float(weights @ error**2) / n
        spread = float(weights @ (self.truth - weights @ self.truth / n) ** 2) / n
        ranks, predicted_ranks = (_ranks(of_distinct, weights) for of_distinct in self.ranked)
        return {
            "mae": self.unit * float(weights @ np.abs(error)) / n,
            "rmse": self.unit * squared**0.5,
            "r2": 1 - squared / spread if spread > 0 else np.nan,
            "pearson": _pearson(self.truth, self.predicted, weights),
            "spearman": _pearson(ranks, predicted_ranks, weights),
        }


def _ranks(of_distinct: Int[np.ndarray, " N"], weights: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the rank of each example, equal ones their mean rank, where each is there `weights` times."""
    counts = np.bincount(of_distinct, weights)
    return (counts.cumsum() - (counts - 1) / 2)[of_distinct]


def _pearson(a: Numbers, b: Numbers, weights: Float[np.ndarray, " N"]) -> float:
    n = weights.sum()
    a, b = a - weights @ a / n, b - weights @ b / n
    spread = float(np.sqrt((weights @ a**2) * (weights @ b**2)))
    # Beside rounding: the deviations of one constant are none.
    constant = min(np.ptp(a[weights > 0]), np.ptp(b[weights > 0])) == 0
    return np.nan if constant or spread == 0 else min(1.0, max(-1.0, float(weights @ (a * b)) / spread))


def fit_baselines(
    train_texts: Sequence[str],
    train: Numbers,
    test_texts: Sequence[str],
    test: Float[np.ndarray, " T"],
    scale: tuple[float, float],
    pairs: bool = False,
) -> dict[str, dict[str, Any]]:
    """Fit and score what a regressor has to beat, on what it was trained and is scored on.

    `scale` are mean and standard deviation of the training numbers. With `pairs` each text is a pair.

    Returns:
        `mean`, the mean training number for each text, and `tfidf_ridge`, ridge regression on TF-IDF; each with its
        scores and its settings in words. The second is absent where there is no word.
    """
    mean, sd = scale
    settings = f"always {mean:.6g}, the mean of the training numbers"
    baselines = {"mean": score(test, np.full(len(test), mean)) | {"settings": settings}}
    rng = np.random.default_rng(0)
    if len(train_texts) > MAX_TRAIN:
        kept = np.sort(rng.choice(len(train_texts), MAX_TRAIN, replace=False))
        train_texts, train = list(map(train_texts.__getitem__, kept)), train[kept]
    if (features := tfidf_features(train_texts, test_texts, pairs)) is None:
        return baselines
    x_train, x_test, units = features
    y = (train - mean) / sd
    alpha = _choose_alpha(x_train, y, rng)
    # TF-IDF is in single precision, in which a large mean has no room for the rest.
    predicted = mean + sd * _ridge(x_train, y, alpha).predict(x_test).astype(np.float64)
    settings = (
        f"TF-IDF of {units}; ridge regression, alpha = {alpha:g} chosen on a tenth of the {len(y):,} training texts"
    )
    return baselines | {"tfidf_ridge": score(test, predicted) | {"settings": settings}}


def _choose_alpha(x: Any, y: Numbers, rng: np.random.Generator) -> float:
    """Return the strength of the penalty with the least absolute error on a held-out tenth, by which models are chosen.

    1 where that tenth is too few texts to say.
    """
    order = rng.permutation(len(y))
    held, rest = order[: len(y) // 10], order[len(y) // 10 :]
    if len(held) < FEWEST_HELD:
        return 1.0
    errors = [mean_absolute_error(y[held], _ridge(x[rest], y[rest], alpha).predict(x[held])) for alpha in ALPHAS]
    return ALPHAS[int(np.argmin(errors))]


def _ridge(x: Any, y: Numbers, alpha: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=alpha).fit(x, y)

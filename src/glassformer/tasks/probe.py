"""A linear layer fitted to the vectors of a pretrained encoder as it is: a linear probe.

Training starts from it, and not from a random head, whose large first gradients would distort what the encoder has
learned (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution").
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

PENALTIES = 0.001, 0.003, 0.01, 0.03, 0.1
"""Inverse strengths of the L2 penalty to choose from, for vectors whose features have a mean square of 1."""
FOLDS, ONE_FOLD_FROM = 5, 2000
"""The strength is chosen on held-out fifths of the training texts: all five, or from so many texts on the first."""

Layer = tuple[Float[np.ndarray, "O P"], Float[np.ndarray, " O"]]
"""Weight and bias."""


def fit_layer(vectors: Float[np.ndarray, "N P"], truth: np.ndarray) -> Layer:
    """Return a linear model of pooled vectors: a ridge of numbers, a logistic regression of classes, (N,).

    Of two classes it has the logit of the second. Of several labels (N, L), some of which all texts may have, it is one
    for each, with the penalty of the label that most texts have.
    """
    x, unscaled = _scaled(vectors)
    if truth.ndim == 1:
        return unscaled(_fitted(x, truth, _penalty(x, truth)))
    weight, bias = np.zeros((truth.shape[1], vectors.shape[1])), prior_logits(truth)
    if mixed := [k for k in range(truth.shape[1]) if 0 < truth[:, k].sum() < len(truth)]:
        penalty = _penalty(x, truth[:, max(mixed, key=lambda k: truth[:, k].sum())].astype(np.int64))
        for k in mixed:
            weight[k : k + 1], bias[k : k + 1] = unscaled(_fitted(x, truth[:, k], penalty))
    return weight, bias


def prior_logits(labels: Bool[np.ndarray, "N L"]) -> Float[np.ndarray, " L"]:
    """Return the logits by which each label is as probable as it is in training."""
    shares = (labels.sum(axis=0) + 1) / (len(labels) + 2)
    return np.log(shares / (1 - shares))


def _scaled(vectors: np.ndarray) -> tuple[np.ndarray, Callable[[Any], Layer]]:
    """Return centred vectors whose features have a mean square of 1, and what turns a model of them into a layer."""
    center = vectors.mean(axis=0)
    scale = max(float(np.sqrt(np.square(vectors - center).mean())), 1e-12)

    def unscaled(fitted: Any) -> Layer:
        weight = np.atleast_2d(fitted.coef_) / scale
        return weight, fitted.intercept_ - weight @ center

    return (vectors - center) / scale, unscaled


def _fitted(x: np.ndarray, truth: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge

    if truth.dtype.kind == "f":
        return Ridge(alpha=1 / penalty).fit(x, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": it is where a training starts
        return LogisticRegression(C=penalty, max_iter=500).fit(x, truth)


def _penalty(x: np.ndarray, truth: np.ndarray) -> float:
    """Return the inverse strength with the most right answers, or the least squared error, on held-out texts."""
    folds, scores = np.random.default_rng(0).permutation(len(truth)) % FOLDS, np.zeros(len(PENALTIES))
    for fold in range(FOLDS if len(truth) < ONE_FOLD_FROM else 1):
        held = folds == fold
        if not held.any() or len(np.unique(truth[~held])) < 2:
            continue
        for i, penalty in enumerate(PENALTIES):
            predicted = _fitted(x[~held], truth[~held], penalty).predict(x[held])
            right = -np.square(predicted - truth[held]) if truth.dtype.kind == "f" else predicted == truth[held]
            scores[i] += right.sum()
    return PENALTIES[int(scores.argmax())]

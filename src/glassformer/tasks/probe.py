"""A linear layer fitted to the vectors of a pretrained encoder as it is: a linear probe.

Training starts from it, and not from a random head, whose large first gradients would distort what the encoder has
learned (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution").
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

PENALTIES = 0.001, 0.003, 0.01, 0.03, 0.1
"""Inverse strengths of the L2 penalty to choose from, for vectors whose features have a mean square of 1."""
FOLDS, ONE_FOLD_FROM = 5, 2000
"""The strength is chosen on held-out fifths of the training texts: all five, or from so many texts on the first."""

Layer = tuple[Float[np.ndarray, "O P"], Float[np.ndarray, " O"]]
"""Weight and bias."""


def fit_classes(vectors: Float[np.ndarray, "N P"], labels: Int[np.ndarray, " N"]) -> Layer:
    """Return a logistic regression on pooled vectors; of two classes, the logit of the second."""
    x, unscaled = _scaled(vectors)
    fitted = _logistic(x, labels, _penalty(x, labels))
    return unscaled(fitted.coef_, fitted.intercept_)


def fit_labels(vectors: Float[np.ndarray, "N P"], labels: Bool[np.ndarray, "N L"]) -> Layer:
    """Return a logistic regression for each of several labels, some of which all texts may have.

    The penalty is that of the label that most texts have.
    """
    shares = (labels.sum(axis=0) + 1) / (len(labels) + 2)
    weight, bias = np.zeros((labels.shape[1], vectors.shape[1])), np.log(shares / (1 - shares))
    x, unscaled = _scaled(vectors)
    mixed = [k for k in range(labels.shape[1]) if 0 < labels[:, k].sum() < len(labels)]
    if mixed:
        penalty = _penalty(x, labels[:, max(mixed, key=lambda k: labels[:, k].sum())].astype(np.int64))
        for k in mixed:
            fitted = _logistic(x, labels[:, k], penalty)
            weight[k : k + 1], bias[k : k + 1] = unscaled(fitted.coef_, fitted.intercept_)
    return weight, bias


def fit_number(vectors: Float[np.ndarray, "N P"], targets: Float[np.ndarray, " N"]) -> Layer:
    """Return a ridge regression on pooled vectors."""
    x, unscaled = _scaled(vectors)
    fitted = _ridge(x, targets, _penalty(x, targets, _ridge))
    return unscaled(fitted.coef_[None], np.array([fitted.intercept_]))


def _scaled(vectors: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray, np.ndarray], Layer]]:
    """Return centred vectors whose features have a mean square of 1, and what turns a layer on them back."""
    center = vectors.mean(axis=0)
    scale = max(float(np.sqrt(np.square(vectors - center).mean())), 1e-12)
    return (vectors - center) / scale, lambda weight, bias: (weight / scale, bias - weight / scale @ center)


def _logistic(x: np.ndarray, labels: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": it is where a training starts
        return LogisticRegression(C=penalty, max_iter=500).fit(x, labels)


def _ridge(x: np.ndarray, targets: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1 / penalty).fit(x, targets)


def _penalty(x: np.ndarray, truth: np.ndarray, fit: Callable[..., Any] = _logistic) -> float:
    """Return the inverse strength with the most right answers, or the least squared error, on held-out texts."""
    folds = np.random.default_rng(0).permutation(len(truth)) % FOLDS
    scores = np.zeros(len(PENALTIES))
    for fold in range(FOLDS if len(truth) < ONE_FOLD_FROM else 1):
        held = folds == fold
        if not held.any() or held.all() or (fit is _logistic and len(np.unique(truth[~held])) < 2):
            continue
        for i, penalty in enumerate(PENALTIES):
            predicted = fit(x[~held], truth[~held], penalty).predict(x[held])
            right = predicted == truth[held] if fit is _logistic else -np.square(predicted - truth[held])
            scores[i] += right.sum()
    return PENALTIES[int(scores.argmax())]

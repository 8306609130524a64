"""The head of a classifier fitted to the vectors of a pretrained encoder as it is: a linear probe.

Training starts from it, and not from a random head, whose large first gradients would distort what the encoder has
learned (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution").
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

PENALTIES = 0.001, 0.003, 0.01, 0.03, 0.1
"""Inverse strengths of the L2 penalty to choose from, for vectors whose features have a mean square of 1."""
FOLDS, ONE_FOLD_FROM = 5, 2000
"""The strength is chosen on held-out fifths of the training texts: all five, or from so many texts on the first."""


def fit_probe(
    vectors: Float[np.ndarray, "N P"], labels: Int[np.ndarray, " N"], n_outputs: int
) -> tuple[Float[np.ndarray, "O P"], Float[np.ndarray, " O"], float]:
    """Return weight and bias of a logistic regression, and the strength of its penalty.

    Args:
        vectors: pooled vectors of the training texts.
        labels: their classes, each of which occurs.
        n_outputs: rows of the head: as many as classes, or 1 for two.
    """
    center = vectors.mean(axis=0)
    scale = max(float(np.sqrt(np.square(vectors - center).mean())), 1e-12)
    x = (vectors - center) / scale
    folds = np.random.default_rng(0).permutation(len(labels)) % FOLDS
    scores = np.zeros(len(PENALTIES))
    for fold in range(FOLDS if len(labels) < ONE_FOLD_FROM else 1):
        held = folds == fold
        if held.any() and len(np.unique(labels[~held])) > 1:
            for i, penalty in enumerate(PENALTIES):
                fitted = _fit(x[~held], labels[~held], penalty)
                scores[i] += (fitted.predict(x[held]) == labels[held]).sum()
    penalty = PENALTIES[int(scores.argmax())]
    fitted = _fit(x, labels, penalty)
    weight = fitted.coef_ / scale  # (O, P): for two classes the logit of the second
    bias = fitted.intercept_ - weight @ center
    assert weight.shape[0] == n_outputs
    return weight, bias, penalty


def fit_probes(
    vectors: Float[np.ndarray, "N P"], labels: Bool[np.ndarray, "N L"]
) -> tuple[Float[np.ndarray, "L P"], Float[np.ndarray, " L"]]:
    """Return weight and bias of a logistic regression for each of several labels, some of which all texts may have.

    The penalty is that of the label that most texts have.
    """
    shares = (labels.sum(axis=0) + 1) / (len(labels) + 2)
    weight, bias = np.zeros((labels.shape[1], vectors.shape[1])), np.log(shares / (1 - shares))
    center = vectors.mean(axis=0)
    scale = max(float(np.sqrt(np.square(vectors - center).mean())), 1e-12)
    mixed = [k for k in range(labels.shape[1]) if 0 < labels[:, k].sum() < len(labels)]
    if not mixed:
        return weight, bias
    frequent = max(mixed, key=lambda k: labels[:, k].sum())
    penalty = fit_probe(vectors, labels[:, frequent].astype(np.int64), 1)[2]
    for k in mixed:
        fitted = _fit((vectors - center) / scale, labels[:, k], penalty)
        weight[k] = fitted.coef_[0] / scale
        bias[k] = fitted.intercept_[0] - weight[k] @ center
    return weight, bias


def fit_ridge_probe(
    vectors: Float[np.ndarray, "N P"], targets: Float[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "1 P"], Float[np.ndarray, " 1"]]:
    """Return weight and bias of a ridge regression, whose strength is chosen as that of `fit_probe`."""
    from sklearn.linear_model import Ridge

    center = vectors.mean(axis=0)
    scale = max(float(np.sqrt(np.square(vectors - center).mean())), 1e-12)
    x = (vectors - center) / scale
    folds = np.random.default_rng(0).permutation(len(targets)) % FOLDS
    errors = np.zeros(len(PENALTIES))
    for fold in range(FOLDS if len(targets) < ONE_FOLD_FROM else 1):
        held = folds == fold
        if held.any() and not held.all():
            for i, penalty in enumerate(PENALTIES):
                fitted = Ridge(alpha=1 / penalty).fit(x[~held], targets[~held])
                errors[i] += np.square(fitted.predict(x[held]) - targets[held]).sum()
    fitted = Ridge(alpha=1 / PENALTIES[int(errors.argmin())]).fit(x, targets)
    weight = (fitted.coef_ / scale)[None]
    return weight, np.array([fitted.intercept_]) - weight @ center


def _fit(x: np.ndarray, labels: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": it is where a training starts
        return LogisticRegression(C=penalty, max_iter=500).fit(x, labels)

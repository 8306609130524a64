"""Scores of a classifier: how often it is right, for which classes, and if its confidence can be trusted.

It takes labels and probabilities and returns one JSON-ready dict. The bag-of-words yardsticks that stand
beside these numbers are in `baselines.py`; pictures of them in `tasks/classify_report.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.errors import DataError
from glassformer.evaluate.significance import wilson_interval

N_BINS = 15
"""Bins of the reliability diagram, as in Guo et al. 2017."""


def score(labels: Sequence[int] | np.ndarray, probabilities: np.ndarray, label_names: list[str]) -> dict[str, Any]:
    """Score a classifier's probabilities against the true labels.

    Args:
        labels: (N,) class numbers.
        probabilities: (N, C), each row a distribution over the classes.
        label_names: the C names, in class order.

    Returns:
        n; accuracy with ci95 (Wilson); macro_f1 (over classes that occur or are predicted); log_loss in nats;
        roc_auc (for two classes of the second; for more, the mean of one-against-the-rest; None when only one
        class occurs); ece and its calibration bins; per_class; confusion (rows true, columns predicted).

    Raises:
        DataError: nothing to score, sizes that do not fit together, a label out of range, or NaN.
    """
    from sklearn.metrics import confusion_matrix

    truth, probabilities = _checked(labels, probabilities, label_names)
    predicted = probabilities.argmax(axis=1)
    n, n_right = len(truth), int((predicted == truth).sum())
    per_class, macro_f1 = _per_class(truth, predicted, label_names)
    ece, bins = calibration(truth, probabilities)
    of_truth = probabilities[np.arange(n), truth]
    return {
        "n": n,
        "accuracy": n_right / n,
        "ci95": wilson_interval(n_right, n),
        "macro_f1": macro_f1,
        "log_loss": float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean()),
        "roc_auc": roc_auc(truth, probabilities),
        "ece": ece,
        "label_names": list(label_names),
        "per_class": per_class,
        "confusion": confusion_matrix(truth, predicted, labels=np.arange(len(label_names))).tolist(),
        "calibration": bins,
    }


def roc_auc(truth: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the chance that a random member of a class is ranked above a random non-member.

    Two classes: of the second class. More: the mean over the classes that occur, each against the rest.
    None when it is undefined, because all examples are of one class.
    """
    from sklearn.metrics import roc_auc_score

    present = np.unique(truth)
    if len(present) < 2:
        return None
    classes = [1] if probabilities.shape[1] == 2 else present
    return float(np.mean([roc_auc_score(truth == c, probabilities[:, c]) for c in classes]))


def calibration(truth: np.ndarray, probabilities: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Compare confidence with accuracy in bins of equal width (Guo et al. 2017, section 2).

    Returns:
        The expected calibration error, i.e. the mean |confidence − accuracy| over examples by bin, and the
        bins that hold examples: low, high, n, mean confidence, accuracy.
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    which = np.clip(np.digitize(confidence, edges, right=True) - 1, 0, N_BINS - 1)
    bins, error = [], 0.0
    for b in np.unique(which):
        inside = which == b
        row = {"low": float(edges[b]), "high": float(edges[b + 1]), "n": int(inside.sum())}
        row |= {"confidence": float(confidence[inside].mean()), "accuracy": float(right[inside].mean())}
        error += row["n"] / len(truth) * abs(row["confidence"] - row["accuracy"])
        bins.append(row)
    return error, bins


def _per_class(truth: np.ndarray, predicted: np.ndarray, names: list[str]) -> tuple[list[dict[str, Any]], float]:
    """Return a row for each class, and F1 averaged over the classes that occur or are predicted."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(truth, predicted, labels=np.arange(len(names)), zero_division=0)  # pyright: ignore[reportArgumentType]
    keys = ("label", "precision", "recall", "f1", "support")
    values = (np.asarray(column).tolist() for column in columns)
    rows: list[dict[str, Any]] = [dict(zip(keys, row, strict=True)) for row in zip(names, *values, strict=True)]
    # A class nobody mentions has no F1; calling it 0 would punish the model.
    return rows, float(np.mean([rows[c]["f1"] for c in np.union1d(truth, predicted)]))


def _checked(
    labels: Sequence[int] | np.ndarray, probabilities: np.ndarray, names: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as int64 (N,) and probabilities as float64 (N, C), or say what does not fit."""
    truth, probabilities = np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64)
    if len(truth) == 0:
        raise DataError("There are no examples to score.", hint="Check that the test file has rows.")
    if probabilities.shape != (len(truth), len(names)):
        expected = f"shape ({len(truth)}, {len(names)}) for {len(truth)} labels and {len(names)} classes"
        raise DataError(f"Expected probabilities of {expected}, got {probabilities.shape}.")
    if truth.min() < 0 or truth.max() >= len(names):
        raise DataError(f"Labels must lie in 0…{len(names) - 1}, got {truth.min()}…{truth.max()}.")
    if not np.isfinite(probabilities).all():
        hint = "The model has diverged; `glassformer doctor RUN` says what to change."
        raise DataError("The classifier's probabilities contain NaN or infinity.", hint)
    return truth, probabilities

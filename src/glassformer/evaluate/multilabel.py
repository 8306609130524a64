"""Scores of a classifier whose texts may have several labels, or none, and the thresholds of its labels.

Each label is a decision of its own: micro F1 counts all decisions together, macro F1 is the mean over the labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from glassformer.errors import DataError
from glassformer.evaluate.classification import PENALTIES, tfidf_features
from glassformer.evaluate.significance import bootstrap_interval, wilson_interval

Labels = Bool[np.ndarray, "N L"]
Probabilities = Float[np.ndarray, "N L"]
FEWEST = 10
"""Validation texts with a label, and without it, from which it has a threshold of its own."""
MOST_CHOSEN_BY = 10
"""Labels by which the penalty of the bag of words is chosen: those that most texts have."""


def score(truth: Labels, probabilities: Probabilities, answered: Labels, label_names: Sequence[str]) -> dict[str, Any]:
    """Score the labels that were answered, and the probabilities that they were chosen by.

    Returns:
        n; micro_f1 with micro_f1_ci95 (bootstrap over texts); macro_f1 (over labels that occur or are answered);
        all_right, the share of texts whose labels are all right, with its interval (Wilson); ranking_precision, the
        label ranking average precision (Schapire and Singer 2000), over the texts that have labels; log_loss in nats
        per label; labels_per_text, in truth and answered; per_label.

    Raises:
        DataError: nothing to score, or sizes that do not fit together.
    """
    if len(truth) == 0:
        raise DataError("there are no examples to score", "check that the test file has rows")
    if not truth.shape == probabilities.shape == answered.shape == (len(truth), len(label_names)):
        raise DataError(f"expected three arrays (N, {len(label_names)}), got {truth.shape}, {probabilities.shape}")
    of_truth = np.where(truth, probabilities, 1 - probabilities)
    return {
        "n": len(truth),
        **_scored(truth, answered),
        "all_right_ci95": wilson_interval(int((truth == answered).all(axis=1).sum()), len(truth)),
        "ranking_precision": ranking_precision(truth, probabilities),
        "log_loss": float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean()),
        "labels_per_text": [float(truth.sum(axis=1).mean()), float(answered.sum(axis=1).mean())],
        "label_names": list(label_names),
        "per_label": _per_label(truth, answered, label_names),
    }


def _counts(truth: Labels, answered: Labels) -> Float[np.ndarray, "N 3"]:
    """Return for each text how many labels are rightly answered, wrongly answered, and missed."""
    return np.stack([(truth & answered).sum(1), (~truth & answered).sum(1), (truth & ~answered).sum(1)], axis=1).astype(
        float
    )


def micro_f1(right: float, wrong: float, missed: float) -> float:
    """Return F1 of counts; 0 where nothing is there and nothing answered."""
    total = 2 * right + wrong + missed
    return float(2 * right / total) if total else 0.0


def score_of(truth: Labels, answered: Labels) -> float:
    """Return micro F1."""
    return micro_f1(*_counts(truth, answered).sum(axis=0))


def macro_f1(truth: Labels, answered: Labels) -> float:
    """Return the mean F1 over labels that occur or are answered: one that does neither has no F1."""
    scores = [micro_f1(*_counts(t[:, None], a[:, None]).sum(axis=0)) for t, a in zip(truth.T, answered.T, strict=True)]
    used = truth.any(axis=0) | answered.any(axis=0)
    return float(np.mean(np.array(scores)[used])) if used.any() else 0.0


def ranking_precision(truth: Labels, probabilities: Probabilities) -> float | None:
    """Return the label ranking average precision over texts that have labels; None if none has."""
    from sklearn.metrics import label_ranking_average_precision_score

    some = truth.any(axis=1)
    return float(label_ranking_average_precision_score(truth[some], probabilities[some])) if some.any() else None


def _per_label(truth: Labels, answered: Labels, names: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, t, a in zip(names, truth.T, answered.T, strict=True):
        right, n_answered, support = int((t & a).sum()), int(a.sum()), int(t.sum())
        rows.append(
            {
                "label": name,
                "precision": right / n_answered if n_answered else 0.0,
                "recall": right / support if support else 0.0,
                "f1": micro_f1(right, n_answered - right, support - right),
                "support": support,
            }
        )
    return rows


def choose_thresholds(truth: Labels, probabilities: Probabilities) -> list[float]:
    """Return for each label the threshold of the highest F1, on texts that the model was not trained on.

    A label that few of them have takes the threshold of the highest micro F1 of all labels: its own would be that of a
    few texts.
    """
    common = best_threshold(truth.ravel(), probabilities.ravel())
    return [
        best_threshold(t, p) if min(t.sum(), (~t).sum()) >= FEWEST else common
        for t, p in zip(truth.T, probabilities.T, strict=True)
    ]


def best_threshold(truth: Bool[np.ndarray, " N"], probabilities: Float[np.ndarray, " N"]) -> float:
    """Return the threshold of the highest F1, halfway between two probabilities; 0.5 if nothing is true."""
    n_true = int(truth.sum())
    if n_true == 0:
        return 0.5
    order = (-probabilities).argsort(kind="stable")
    p, right = probabilities[order], truth[order].cumsum()
    f1 = 2 * right / (np.arange(1, len(p) + 1) + n_true)
    f1[:-1][p[:-1] == p[1:]] = 0.0  # equal probabilities are answered together
    last = int(f1.argmax())
    below = p[last + 1] if last + 1 < len(p) else 0.0
    return float((p[last] + below) / 2)


def fit_baselines(
    train_texts: Sequence[str],
    train: Labels,
    test_texts: Sequence[str],
    test: Bool[np.ndarray, "T L"],
    pairs: bool = False,
) -> dict[str, dict[str, Any]]:
    """Fit and score what a classifier of several labels has to beat, on what it was trained and is scored on.

    With `pairs` each text is a pair.

    Returns:
        `frequent`, the labels that most training texts have, and `tfidf_logistic`, a logistic regression for each label
        on TF-IDF; each with its scores and its settings in words. The second is absent where there is no word.
    """
    shares = train.mean(axis=0)
    limit = best_threshold(train.ravel(), np.broadcast_to(shares, train.shape).ravel())
    constant = np.broadcast_to(shares >= limit, test.shape)
    settings = f"always the labels of {limit:.1%} of the training texts or more: {int((shares >= limit).sum())}"
    baselines = {"frequent": _scored(test, constant) | {"settings": settings}}
    if (features := tfidf_features(train_texts, test_texts, pairs)) is None:
        return baselines
    x_train, x_test, units = features
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": a baseline need not be exact to the last digit
        penalty, threshold = _choose_penalty(x_train, train)
        probabilities = _one_against_rest(x_train, train, x_test, penalty)
    settings = (
        f"TF-IDF of {units}; a logistic regression for each label, L2, C = {penalty:g} and threshold {threshold:.3f} "
        f"chosen on a tenth of the {len(train):,} training texts"
    )
    scores = _scored(test, probabilities >= threshold) | {"ranking_precision": ranking_precision(test, probabilities)}
    return baselines | {"tfidf_logistic": scores | {"settings": settings}}


def _choose_penalty(x: Any, truth: Labels) -> tuple[float, float]:
    """Return the inverse strength of the penalty, and the threshold, of the highest micro F1 on a held-out tenth."""
    order = np.random.default_rng(0).permutation(len(truth))
    held, rest = order[: max(1, len(order) // 10)], order[max(1, len(order) // 10) :]
    frequent = np.sort((-truth.sum(axis=0)).argsort(kind="stable")[:MOST_CHOSEN_BY])
    found: list[tuple[float, float]] = []
    for penalty in PENALTIES:
        p = _one_against_rest(x[rest], truth[rest][:, frequent], x[held], penalty)
        limit = best_threshold(truth[held][:, frequent].ravel(), p.ravel())
        found.append((micro_f1(*_counts(truth[held][:, frequent], p >= limit).sum(axis=0)), penalty))
    penalty = max(found, key=lambda pair: (pair[0], -pair[1]))[1]
    p = _one_against_rest(x[rest], truth[rest], x[held], penalty)
    return penalty, best_threshold(truth[held].ravel(), p.ravel())


def _one_against_rest(x: Any, truth: Labels, x_test: Any, penalty: float) -> Float[np.ndarray, "T L"]:
    """Return each label's probability by a logistic regression of its own; its share where all texts agree."""
    from sklearn.linear_model import LogisticRegression

    columns: list[np.ndarray] = []
    for labels in truth.T:
        if labels.all() or not labels.any():
            columns.append(np.full(x_test.shape[0], float(labels.mean())))
        else:
            fitted = LogisticRegression(C=penalty, max_iter=200).fit(x, labels)
            columns.append(fitted.predict_proba(x_test)[:, 1])
    return np.stack(columns, axis=1)


def _scored(truth: Labels, answered: Labels) -> dict[str, Any]:
    counts = _counts(truth, answered)
    return {
        "micro_f1": micro_f1(*counts.sum(axis=0)),
        "micro_f1_ci95": bootstrap_interval(counts, lambda sums: micro_f1(*sums)),
        "macro_f1": macro_f1(truth, answered),
        "all_right": float((truth == answered).all(axis=1).mean()),
    }

"""Scores of what an encoder answers: classes, several labels, a number, a tag for each word.

Each function takes what is true and what was answered, and returns one JSON-ready dict. What stands beside these scores
is in `baselines.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from glassformer.evaluate.scoring import f1, interval, ratio, share, wilson_interval
from glassformer.text.answers import COLDEST, HOTTEST, at_temperature
from glassformer.text.words import spans_of

N_BINS = 15
"""Bins of the calibration error, as in Guo et al. 2017."""
FEWEST_OF_A_LABEL = 10
"""Validation texts with a label, and without it, from which it has a threshold of its own."""

Labels = Bool[np.ndarray, "N L"]
Probabilities = Float[np.ndarray, "N C"]
Sentences = Sequence[Sequence[str]]
"""The tags of each sentence."""


def by_name(names: Iterable[str], right: np.ndarray, answered: np.ndarray, true: np.ndarray) -> list[dict[str, Any]]:
    """Return precision, recall and F1 of each name from how often it was rightly answered, answered, and true."""
    rows: list[dict[str, Any]] = []
    for name, r, a, t in zip(names, right.tolist(), answered.tolist(), true.tolist(), strict=True):
        row = {"label": name, "precision": ratio((r, a)), "recall": ratio((r, t))}
        rows.append(row | {"f1": ratio((2 * r, a + t)), "support": int(t)})
    return rows


def macro_f1(right: np.ndarray, answered: np.ndarray, true: np.ndarray) -> float:
    """Return the mean F1 over names that occur or are answered: one that does neither has no F1, and 0 would punish."""
    used = (answered + true) > 0
    return float(np.mean(2 * right[used] / (answered + true)[used])) if used.any() else 0.0


def log_loss(of_truth: np.ndarray) -> float:
    """Return the mean −log of the probabilities of what is true, in nats, finite also for 0."""
    return float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean())


# --- classes ---------------------------------------------------------------------------------------------------


def class_scores(truth: Sequence[int] | np.ndarray, probabilities: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Score probabilities of classes, rows (N, C), by the true ones, (N,) numbers of classes.

    Returns:
        n; accuracy with ci95 (Wilson); macro_f1 (over classes that occur or are predicted); log_loss in nats;
        ece; label_names; per_class; confusion (rows true, columns predicted).
    """
    truth, probabilities = np.asarray(truth, np.int64), np.asarray(probabilities, np.float64)
    confusion, answered = np.zeros((len(names), len(names)), np.int64), probabilities.argmax(axis=1)
    np.add.at(confusion, (truth, answered), 1)
    rows = by_name(names, confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1))
    return {
        "n": len(truth),
        **right_scores(truth, answered),
        "log_loss": log_loss(probabilities[np.arange(len(truth)), truth]),
        "ece": calibration_error(truth, probabilities),
        "label_names": list(names),
        "per_class": rows,
        "confusion": confusion.tolist(),
    }


def right_scores(truth: np.ndarray, answered: np.ndarray) -> dict[str, Any]:
    """Return accuracy with ci95 (Wilson) and macro_f1 of classes that were answered, (N,) numbers."""
    right, size = truth[answered == truth], 1 + max(answered.max(), truth.max())
    counts = (np.bincount(each, minlength=size) for each in (right, answered, truth))
    interval = wilson_interval(len(right), len(truth))
    return {"accuracy": len(right) / len(truth), "ci95": interval, "macro_f1": macro_f1(*counts)}


def calibration_error(truth: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean |confidence − accuracy| over examples, by bins of equal width (Guo et al. 2017, section 2)."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    which = np.digitize(confidence, np.linspace(0.0, 1.0, N_BINS + 1), right=True)
    bins = [which == number for number in np.unique(which)]
    return float(sum(each.sum() / len(truth) * abs(confidence[each].mean() - right[each].mean()) for each in bins))


def fit_temperature(truth: np.ndarray, probabilities: Probabilities) -> float | None:
    """Return the temperature at which the probabilities have the least log loss (Guo et al. 2017, section 4.2).

    None where they are not numbers, or where every answer is right: the loss then falls with the temperature to the
    end. `truth` are class numbers.
    """
    from scipy.optimize import minimize_scalar

    if not np.isfinite(probabilities).all() or (probabilities.argmax(axis=1) == truth).all():
        return None

    def loss(log_temperature: float) -> float:
        return log_loss(at_temperature(probabilities, math.exp(log_temperature))[np.arange(len(truth)), truth])

    found: Any = minimize_scalar(loss, bounds=(math.log(COLDEST), math.log(HOTTEST)), method="bounded")
    return min(HOTTEST, max(COLDEST, math.exp(found.x)))


def calibrated_scores(truth: np.ndarray, probabilities: Probabilities, temperature: float | None) -> dict[str, Any]:
    """Return the temperature, and log loss and calibration error at it; nothing where there is none."""
    if temperature is None:
        return {}
    calibrated = at_temperature(probabilities, temperature)
    loss = log_loss(calibrated[np.arange(len(truth)), truth])
    error = calibration_error(truth, calibrated)
    return {"temperature": temperature, "ece_calibrated": error, "log_loss_calibrated": loss}


def set_counts(pairs: Sequence[tuple[set[Any], set[Any]]]) -> Float[np.ndarray, "N 3"]:
    """Return of each pair of sets, what is true and what was answered, how many are right, wrong and missed."""
    return np.array([(len(t & a), len(a - t), len(t - a)) for t, a in pairs], float).reshape(-1, 3)


# --- several labels --------------------------------------------------------------------------------------------


def label_counts(truth: Labels, answered: Labels) -> Float[np.ndarray, "N 3"]:
    """Return for each text how many labels are rightly answered, wrongly answered, and missed."""
    pairs = truth & answered, ~truth & answered, truth & ~answered
    return np.stack([each.sum(axis=1) for each in pairs], axis=1).astype(float)


def answered_scores(truth: Labels, answered: Labels) -> dict[str, Any]:
    """Return micro_f1 with its interval, macro_f1, and all_right, the share of texts whose labels are all right."""
    counts, all_right = label_counts(truth, answered), (truth == answered).all(axis=1)
    scores = {"micro_f1": f1(counts.sum(axis=0)), "micro_f1_ci95": interval(f1, counts)}
    by_label = macro_f1((truth & answered).sum(axis=0), answered.sum(axis=0), truth.sum(axis=0))
    return scores | {"macro_f1": by_label, "all_right": float(all_right.mean())}


def label_scores(truth: Labels, probabilities: Probabilities, answered: Labels, names: Sequence[str]) -> dict[str, Any]:
    """Score the labels that were answered, and the probabilities that they were chosen by, all (N, L).

    Each label is a decision of its own: micro F1 counts all decisions together, macro F1 is the mean over the labels.

    Returns:
        n; `answered_scores`; the interval of all_right (Wilson); log_loss in nats per label; per_label.
    """
    return {
        "n": len(truth),
        **answered_scores(truth, answered),
        "all_right_ci95": wilson_interval(int((truth == answered).all(axis=1).sum()), len(truth)),
        "log_loss": log_loss(np.where(truth, probabilities, 1 - probabilities)),
        "label_names": list(names),
        "per_label": by_name(names, (truth & answered).sum(axis=0), answered.sum(axis=0), truth.sum(axis=0)),
    }


def choose_thresholds(truth: Labels, probabilities: Probabilities) -> list[float]:
    """Return for each label the threshold of the highest F1, on texts that the model was not trained on.

    A label that few of them have takes the threshold of the highest micro F1 of all labels: its own would be that of a
    few texts.
    """
    common = best_threshold(truth.ravel(), probabilities.ravel())
    return [
        best_threshold(t, p) if min(t.sum(), (~t).sum()) >= FEWEST_OF_A_LABEL else common
        for t, p in zip(truth.T, probabilities.T, strict=True)
    ]


def best_threshold(truth: Bool[np.ndarray, " N"], probabilities: Float[np.ndarray, " N"]) -> float:
    """Return the threshold of the highest F1, halfway between two probabilities; 0.5 if nothing is true."""
    if not truth.any():
        return 0.5
    order = (-probabilities).argsort(kind="stable")
    p, right = probabilities[order], truth[order].cumsum()
    scores = 2 * right / (np.arange(1, len(p) + 1) + right[-1])
    scores[:-1][p[:-1] == p[1:]] = 0.0  # equal probabilities are answered together
    last = int(scores.argmax())
    return float((p[last] + np.append(p, 0.0)[last + 1]) / 2)


# --- a number --------------------------------------------------------------------------------------------------


def number_scores(truth: Float[np.ndarray, " N"], predicted: Float[np.ndarray, " N"]) -> dict[str, Any]:
    """Score predicted numbers, of any size: from the mean of the true ones, in units of the largest distance from it.

    Returns:
        n; mae and rmse, in the units of the numbers, each with its 95% interval, a bootstrap over examples with a best
        and a worst error: 0, and the range of the true numbers or twice the largest; r2; pearson and spearman. What is
        undefined, as a correlation with one constant, is None.
    """
    from scipy.stats import rankdata

    unit = float(np.abs([truth - truth.mean(), predicted - truth.mean()]).max()) or 1.0
    t, p = (truth - truth.mean()) / unit, (predicted - truth.mean()) / unit
    error, n, spread = np.abs(p - t), np.ones(len(t)), np.ptp(t)
    worst = float(max(spread, 2 * error.max()))

    def mean(sums: np.ndarray, power: int) -> float:
        return unit * ratio(sums) ** (1 / power)

    scores = dict[str, Any](n=len(truth))
    for name, power in (("mae", 1), ("rmse", 2)):
        counts, score = np.stack([error**power, n], axis=1), partial(mean, power=power)
        between = interval(score, counts, np.array([[0.0, 1.0], [worst**power, 1.0]]))
        scores |= {name: score(counts.sum(axis=0)), f"{name}_ci95": between}
    r2 = 1 - np.square(error).sum() / np.square(t - t.mean()).sum() if spread > 0 else None
    of_values, of_ranks = None, None
    if min(spread, np.ptp(p)) > 0:
        of_values, of_ranks = (np.corrcoef(*columns)[0, 1] for columns in ((t, p), (rankdata(t), rankdata(p))))
    found = {"r2": r2, "pearson": of_values, "spearman": of_ranks}
    return scores | {name: None if value is None else float(value) for name, value in found.items()}


# --- tags ------------------------------------------------------------------------------------------------------


def tag_counts(truth: Sentences, found: Sentences) -> Float[np.ndarray, "N 5"]:
    """Return of each sentence the spans that are right, wrong and missed, and the tags that are right, and all.

    A span counts where its borders and its label are right. That is enough for the scores of any set of sentences.
    """
    spans = set_counts([({*spans_of(t)}, {*spans_of(f)}) for t, f in zip(truth, found, strict=True)])
    right = [(sum(map(str.__eq__, t, f)), len(t)) for t, f in zip(truth, found, strict=True)]
    return np.hstack([spans, np.array(right, float).reshape(-1, 2)])


def tag_scores(truth: Sentences, found: Sentences, plain: bool) -> dict[str, Any]:
    """Score the tags of all words of some sentences; `plain` ones mark no spans.

    Returns:
        n, the sentences, and n_words; headline, its name; tag_accuracy, and for spans span_f1, span_precision and
        span_recall (micro); macro_f1 over the labels of spans, or the plain tags, that occur or are answered; the
        headline's interval; per_label.
    """
    counts = tag_counts(truth, found)
    right, wrong, missed, _, n_words = sums = counts.sum(axis=0)
    scores: dict[str, Any] = {"n": len(counts), "n_words": int(n_words), "tag_accuracy": ratio(sums[3:])}
    if plain:
        scores |= {"headline": "tag_accuracy", "tag_accuracy_ci95": interval(share, counts[:, 3:])}
    else:
        scores |= {
            "headline": "span_f1",
            "span_f1": f1(sums),
            "span_precision": ratio((right, right + wrong)),
            "span_recall": ratio((right, right + missed)),
            "span_f1_ci95": interval(f1, counts),
        }
    things = [[{*enumerate(tags)} if plain else {*spans_of(tags)} for tags in one] for one in (truth, found)]
    both = [t & f for t, f in zip(*things, strict=True)]
    tallies = [Counter(thing[-1] for each in one for thing in each) for one in (both, things[1], things[0])]
    names = sorted(tallies[1] | tallies[2])
    of_names = [np.array([tally[name] for name in names], int) for tally in tallies]
    return scores | {"macro_f1": macro_f1(*of_names), "per_label": by_name(names, *of_names)}

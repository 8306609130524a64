"""Scores of what an encoder answers: classes, several labels, a number, a tag for each word.

Each function takes what is true and what was answered, and returns one JSON-ready dict. What stands beside these scores
is in `baselines.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from glassformer.errors import DataError
from glassformer.evaluate.scoring import f1, interval, ratio, share
from glassformer.evaluate.significance import wilson_interval
from glassformer.text.decision import COLDEST, HOTTEST, at_temperature
from glassformer.text.tags import OUTSIDE, spans_of

N_BINS = 15
"""Bins of the reliability diagram, as in Guo et al. 2017."""
N_COVERAGES = 20
"""Steps of the coverage curve."""
FEWEST_OF_A_LABEL = 10
"""Validation texts with a label, and without it, from which it has a threshold of its own."""
MOST_IN_CONFUSION = 60
"""Labels up to which the confusions of tags are counted."""

Labels = Bool[np.ndarray, "N L"]
Probabilities = Float[np.ndarray, "N C"]
Sentences = Sequence[Sequence[str]]
"""The tags of each sentence."""


def checked(truth: Any, answers: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise a DataError where there is nothing to score, or sizes do not fit, or an answer is no finite number."""
    if len(truth) == 0:
        raise DataError("there are no examples to score", "check that the test file has rows")
    if answers.shape != shape:
        raise DataError(f"expected answers of shape {shape} for {len(truth)} examples, got {answers.shape}")
    if not np.isfinite(answers).all():
        hint = "the model has diverged; `glassformer doctor RUN` says what to change"
        raise DataError("the answers contain NaN or infinity", hint)


def by_name(names: Iterable[str], right: np.ndarray, answered: np.ndarray, true: np.ndarray) -> list[dict[str, Any]]:
    """Return precision, recall and F1 of each name from how often it was rightly answered, answered, and true."""
    rows: list[dict[str, Any]] = []
    for name, r, a, t in zip(names, right.tolist(), answered.tolist(), true.tolist(), strict=True):
        row = {"label": name, "precision": r / a if a else 0.0, "recall": r / t if t else 0.0}
        rows.append(row | {"f1": f1(np.array([r, a - r, t - r])), "support": int(t)})
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
        roc_auc (for two classes of the second; for more, the mean of one-against-the-rest; None when only one
        class occurs); ece and its calibration bins; the coverage curve; per_class; confusion (rows true, columns
        predicted).

    Raises:
        DataError: see `checked`; or a label is out of range.
    """
    truth, probabilities = np.asarray(truth, np.int64), np.asarray(probabilities, np.float64)
    checked(truth, probabilities, (len(truth), len(names)))
    if truth.min() < 0 or truth.max() >= len(names):
        raise DataError(f"labels must lie in 0…{len(names) - 1}, got {truth.min()}…{truth.max()}")
    confusion = np.zeros((len(names), len(names)), np.int64)
    np.add.at(confusion, (truth, probabilities.argmax(axis=1)), 1)
    counts, n_right = (confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)), int(np.trace(confusion))
    ece, bins = calibration(truth, probabilities)
    return {
        "n": len(truth),
        "accuracy": n_right / len(truth),
        "ci95": wilson_interval(n_right, len(truth)),
        "macro_f1": macro_f1(*counts),
        "log_loss": log_loss(probabilities[np.arange(len(truth)), truth]),
        "roc_auc": roc_auc(truth, probabilities),
        "ece": ece,
        "label_names": list(names),
        "per_class": by_name(names, *counts),
        "confusion": confusion.tolist(),
        "calibration": bins,
        "coverage": coverage_curve(truth, probabilities),
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


def coverage_curve(truth: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """Return how often the answers are right of which the model is most sure, by the share of texts answered.

    Returns:
        For each share in steps of 5% the `min_probability` at which at least that share is answered, how many texts
        that are, as `n` and as `coverage`, and their accuracy with ci95 (Wilson). Equal probabilities are answered
        together, so that some steps are left out.
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    ordered, points = np.sort(confidence)[::-1], dict[int, dict[str, Any]]()
    for step in range(1, N_COVERAGES + 1):
        # Rounded down, so that as many are answered where the last bits of a probability are others.
        least = math.floor(ordered[math.ceil(step * len(truth) / N_COVERAGES) - 1] * 1e6) / 1e6
        answered = confidence >= least
        n, n_right = int(answered.sum()), int(right[answered].sum())
        point = {"coverage": n / len(truth), "n": n, "min_probability": least}
        points[n] = point | {"accuracy": n_right / n, "ci95": wilson_interval(n_right, n)}
    return list(points.values())


def fit_temperature(truth: np.ndarray, probabilities: Probabilities) -> float | None:
    """Return the temperature at which the probabilities have the least log loss (Guo et al. 2017, section 4.2).

    None where they are not numbers, or where every answer is right: the loss then falls with the temperature to the
    end. `truth` are class numbers.
    """
    from scipy.optimize import minimize_scalar

    if not np.isfinite(probabilities).all() or (probabilities.argmax(axis=1) == truth).all():
        return None
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        return log_loss(at_temperature(probabilities, math.exp(log_temperature))[rows, truth])

    bounds = math.log(COLDEST), math.log(HOTTEST)
    found = minimize_scalar(loss, bounds=bounds, method="bounded")
    return min(HOTTEST, max(COLDEST, math.exp(found.x)))  # pyright: ignore[reportAttributeAccessIssue]


def calibrated_scores(truth: np.ndarray, probabilities: Probabilities, temperature: float | None) -> dict[str, Any]:
    """Return the temperature, and log loss and calibration error at it; nothing where there is none."""
    if temperature is None:
        return {}
    calibrated = at_temperature(probabilities, temperature)
    loss = log_loss(calibrated[np.arange(len(truth)), truth])
    error = calibration(truth, calibrated)[0]
    return {"temperature": temperature, "ece_calibrated": error, "log_loss_calibrated": loss}


# --- several labels --------------------------------------------------------------------------------------------


def label_counts(truth: Labels, answered: Labels) -> Float[np.ndarray, "N 3"]:
    """Return for each text how many labels are rightly answered, wrongly answered, and missed."""
    pairs = truth & answered, ~truth & answered, truth & ~answered
    return np.stack([each.sum(axis=1) for each in pairs], axis=1).astype(float)


def macro_f1_of(truth: Labels, answered: Labels) -> float:
    """Return `macro_f1` of labels."""
    return macro_f1((truth & answered).sum(axis=0), answered.sum(axis=0), truth.sum(axis=0))


def answered_scores(truth: Labels, answered: Labels) -> dict[str, Any]:
    """Return micro_f1 with its interval, macro_f1, and all_right, the share of texts whose labels are all right."""
    counts = label_counts(truth, answered)
    scores = {"micro_f1": f1(counts.sum(axis=0)), "micro_f1_ci95": interval(f1, counts)}
    return scores | {
        "macro_f1": macro_f1_of(truth, answered),
        "all_right": float((truth == answered).all(axis=1).mean()),
    }


def label_scores(truth: Labels, probabilities: Probabilities, answered: Labels, names: Sequence[str]) -> dict[str, Any]:
    """Score the labels that were answered, and the probabilities that they were chosen by, all (N, L).

    Each label is a decision of its own: micro F1 counts all decisions together, macro F1 is the mean over the labels.

    Returns:
        n; `answered_scores`; the interval of all_right (Wilson); ranking_precision, the label ranking average precision
        (Schapire and Singer 2000), over the texts that have labels; log_loss in nats per label; labels_per_text, in
        truth and answered; per_label.

    Raises:
        DataError: see `checked`.
    """
    checked(truth, probabilities, (len(truth), len(names)))
    n_right = int((truth == answered).all(axis=1).sum())
    counts = (truth & answered).sum(axis=0), answered.sum(axis=0), truth.sum(axis=0)
    return {
        "n": len(truth),
        **answered_scores(truth, answered),
        "all_right_ci95": wilson_interval(n_right, len(truth)),
        "ranking_precision": ranking_precision(truth, probabilities),
        "log_loss": log_loss(np.where(truth, probabilities, 1 - probabilities)),
        "labels_per_text": [float(truth.sum(axis=1).mean()), float(answered.sum(axis=1).mean())],
        "label_names": list(names),
        "per_label": by_name(names, *counts),
    }


def ranking_precision(truth: Labels, probabilities: Probabilities) -> float | None:
    """Return the label ranking average precision over texts that have labels; None if none has."""
    from sklearn.metrics import label_ranking_average_precision_score

    some = truth.any(axis=1)
    return float(label_ranking_average_precision_score(truth[some], probabilities[some])) if some.any() else None


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
    n_true = int(truth.sum())
    if n_true == 0:
        return 0.5
    order = (-probabilities).argsort(kind="stable")
    p, right = probabilities[order], truth[order].cumsum()
    scores = 2 * right / (np.arange(1, len(p) + 1) + n_true)
    scores[:-1][p[:-1] == p[1:]] = 0.0  # equal probabilities are answered together
    last = int(scores.argmax())
    below = p[last + 1] if last + 1 < len(p) else 0.0
    return float((p[last] + below) / 2)


# --- a number --------------------------------------------------------------------------------------------------


def number_scores(truth: Float[np.ndarray, " N"], predicted: Float[np.ndarray, " N"]) -> dict[str, Any]:
    """Score predicted numbers, of any size: from the mean of the true ones, in units of the largest distance from it.

    Returns:
        n; mae and rmse, in the units of the numbers; r2; pearson and spearman; each with its 95% interval, a bootstrap
        over examples, of errors with a best and a worst one: 0, and the range of the true numbers or twice the largest.
        A resampled spearman keeps the ranks of the whole. What is undefined, as a correlation with one constant, is
        None and has no interval.

    Raises:
        DataError: see `checked`.
    """
    from scipy.stats import rankdata

    checked(truth, predicted, (len(truth),))
    center = truth.mean() if np.isfinite(truth.mean()) else 0.0
    unit = float(np.abs([truth - center, predicted - center]).max()) or 1.0
    t, p = (truth - center) / unit, (predicted - center) / unit
    error, n = np.abs(p - t), np.ones(len(t))
    worst = float(max(np.ptp(t), 2 * error.max()))
    scores: dict[str, Any] = {"n": len(truth)}
    for name, column, extreme in (("mae", error, worst), ("rmse", error**2, worst**2)):
        power = 1.0 if name == "mae" else 0.5
        score = _scaled(unit, power)
        counts = np.stack([column, n], axis=1)
        scores[name] = score(counts.sum(axis=0))
        scores[f"{name}_ci95"] = interval(score, counts, np.array([[0.0, 1.0], [extreme, 1.0]]))
    spread, paired = np.stack([error**2, t, t**2, n], axis=1), np.stack([t, p, t**2, p**2, t * p, n], axis=1)
    a, b = (rankdata(column) / len(t) for column in (t, p))
    ranked = np.stack([a, b, a**2, b**2, a * b, n], axis=1)
    constant = np.ptp(t) == 0, min(np.ptp(t), np.ptp(p)) == 0
    for name, counts, function, undefined in (
        ("r2", spread, _r2, constant[0]),
        ("pearson", paired, _pearson, constant[1]),
        ("spearman", ranked, _pearson, constant[1]),
    ):
        scores[name] = None if undefined else function(counts.sum(axis=0))
        scores[f"{name}_ci95"] = None if undefined else interval(function, counts)
    return scores


def _scaled(unit: float, power: float) -> Callable[[np.ndarray], float]:
    return lambda sums: unit * ratio(sums) ** power


def _r2(sums: np.ndarray) -> float:
    """Return 1 − Σ error² / Σ (t − mean)²; in a draw of one constant, 0."""
    squared, t, t2, n = sums
    spread = t2 - t**2 / n
    return float(1 - squared / spread) if spread > 1e-12 * n else 0.0


def _pearson(sums: np.ndarray) -> float:
    """Return the correlation of two columns from the sums of a, b, a², b², ab and 1; 0 in a draw of one constant."""
    a, b, a2, b2, ab, n = sums
    spread = (a2 - a**2 / n) * (b2 - b**2 / n)
    return min(1.0, max(-1.0, float((ab - a * b / n) / spread**0.5))) if spread > 1e-24 * n**2 else 0.0


# --- tags ------------------------------------------------------------------------------------------------------


def tag_counts(truth: Sentences, found: Sentences) -> Float[np.ndarray, "N 5"]:
    """Return of each sentence the spans that are right, wrong and missed, and the tags that are right, and all.

    A span counts where its borders and its label are right. That is enough for the scores of any set of sentences.
    """
    rows: list[tuple[int, ...]] = []
    for t, f in zip(truth, found, strict=True):
        right, answered = set(spans_of(t)), set(spans_of(f))
        n_right = sum(a == b for a, b in zip(t, f, strict=True))
        rows.append((len(right & answered), len(answered - right), len(right - answered), n_right, len(t)))
    return np.array(rows, float).reshape(-1, 5)


def tag_scores(truth: Sentences, found: Sentences, plain: bool) -> dict[str, Any]:
    """Score the tags of all words of some sentences; `plain` ones mark no spans.

    Returns:
        n, the sentences, and n_words; headline, its name; tag_accuracy, and for spans span_f1, span_precision and
        span_recall (micro); macro_f1 over the labels of spans, or the plain tags, that occur or are answered; the
        headline's interval; per_label; confusion and label_names (rows true, columns answered), of single words and
        without B- and I-.

    Raises:
        DataError: there is no word.
    """
    counts = tag_counts(truth, found)
    if not counts[:, 4].sum():
        raise DataError("there are no words to score", "check that the test file has sentences")
    right, wrong, missed, n_right, n_words = counts.sum(axis=0)
    scores: dict[str, Any] = {"n": len(counts), "n_words": int(n_words), "tag_accuracy": float(n_right / n_words)}
    if plain:
        scores |= {"headline": "tag_accuracy", "tag_accuracy_ci95": interval(share, counts[:, 3:])}
    else:
        scores |= {
            "headline": "span_f1",
            "span_f1": f1(counts.sum(axis=0)),
            "span_precision": float(right / (right + wrong)) if right + wrong else 0.0,
            "span_recall": float(right / (right + missed)) if right + missed else 0.0,
            "span_f1_ci95": interval(f1, counts),
        }
    things = [[{*enumerate(tags)} if plain else {*spans_of(tags)} for tags in one] for one in (truth, found)]
    both = [t & f for t, f in zip(*things, strict=True)]
    tallies = [Counter(thing[-1] for each in one for thing in each) for one in (both, things[1], things[0])]
    names = sorted(tallies[1] | tallies[2])
    columns = [np.array([tally[name] for name in names]) for tally in tallies]
    return scores | {
        "macro_f1": macro_f1(columns[0], columns[1], columns[2]) if names else 0.0,
        "per_label": by_name(names, columns[0], columns[1], columns[2]),
        **_confusion(truth, found),
    }


def _confusion(truth: Sentences, found: Sentences) -> dict[str, Any]:
    """Return how often words of each label were given each; nothing for very many labels."""
    words = ((t, f) for ts, fs in zip(truth, found, strict=True) for t, f in zip(ts, fs, strict=True))
    counts = Counter((_label(t), _label(f)) for t, f in words)
    names = sorted({name for pair in counts for name in pair}, key=lambda name: (name != OUTSIDE, name))
    if len(names) > MOST_IN_CONFUSION:
        return {}
    return {"label_names": names, "confusion": [[counts[row, column] for column in names] for row in names]}


def _label(tag: str) -> str:
    spans = spans_of([tag])
    return spans[0].label if spans else tag

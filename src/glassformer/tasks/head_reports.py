"""How runs of an encoder are reported, by its head: scores, tables, pictures, what to mind.

A picture takes an evaluation and returns PNG bytes, or None where it holds nothing to draw. The look is in
`utils/plotting.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scores import tag_counts
from glassformer.evaluate.scoring import Predictions, Scoring, f1, ratio, share
from glassformer.evaluate.significance import CHANCE, mcnemar, wilson_interval
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import code, counted, number, percent, shortened, table

MOST_ROWS = 60
"""Longest table of classes, labels or tags."""


# --- pictures ------------------------------------------------------------------------------------------------

MAX_CLASSES = 60
"""Beyond this a confusion matrix is no picture any more."""


def confusion_matrix(evaluation: Evaluation) -> bytes | None:
    """Draw what was taken for what, each row coloured by its own shares."""
    counts, names = confusion_of(evaluation)
    n = len(counts)
    if not 2 <= n <= MAX_CLASSES:
        return None
    figure, (axes,) = ps.new_figure(6.0, "Confusion", "Rows: true class; columns: predicted", width=5.5)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.86))  # below the title
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    label: Any = {"labels": [shortened(name, 18) for name in names], "fontsize": min(10, 250 / n), "parse_math": False}
    axes.set_xticks(np.arange(n), rotation=45, ha="right", **label)
    axes.set_yticks(np.arange(n), **label)
    for (row, column), count in np.ndenumerate(counts):
        colour = ps.PAPER if shares[row, column] > 0.6 else ps.INK
        axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=label["fontsize"])
    return ps.png(figure)


def reliability(evaluation: Evaluation) -> bytes | None:
    """Draw accuracy against confidence, with Wilson intervals."""
    bins = evaluation.scores.get("calibration") or []
    if not bins:
        return None
    title = f"Is its confidence earned?  Mean gap {percent(evaluation.scores['ece'])}"
    subtitle = "Share right by confidence; below the dashed line it is too sure"
    figure, (axes,) = ps.new_figure(4.0, title, subtitle, width=5.0)
    axes.plot([bins[0]["low"], 1], [bins[0]["low"], 1], color=ps.QUIET, linewidth=0.9, linestyle="--")
    confidence, accuracy = ([row[key] for row in bins] for key in ("confidence", "accuracy"))
    intervals = [wilson_interval(round(row["accuracy"] * row["n"]), row["n"]) for row in bins]
    axes.vlines(confidence, *np.transpose(intervals), color=ps.ACCENT, linewidth=1.0, alpha=0.55)
    axes.plot(confidence, accuracy, color=ps.ACCENT, marker="o", markersize=4.2, clip_on=False)
    axes.set_xlabel("confidence in the predicted class")
    for axis in (axes.yaxis, axes.xaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    return ps.png(figure)


# --- tables and cautions ---------------------------------------------------------------------------------------


def precision_table(unit: str, rows: Sequence[JsonObject]) -> str:
    """Return precision, recall and F1 of each class or label as Markdown; `unit` is the header of their names."""
    keys = "precision", "recall", "f1"
    cells = [[row["label"], *(percent(row[key]) for key in keys), f"{row['support']:,}"] for row in rows]
    return table([unit, *keys, "examples"], cells)


def no_better_than_guessing(evaluation: Evaluation) -> list[str]:
    """Say so where always answering the majority class is right as often, or chance explains the difference."""
    confusion, names = confusion_of(evaluation)
    true, n = confusion.sum(axis=1), int(confusion.sum())
    if n == 0:
        return []
    guess = int(evaluation.baselines.get("majority", {}).get("label", true.argmax()))
    right, both = int(np.trace(confusion)), int(confusion[guess, guess])
    p_value = mcnemar(right - both, int(true[guess]) - both)
    if right > true[guess] and p_value < CHANCE:
        return []
    often = f"would be right in {percent(true[guess] / n)} of {n:,} texts"
    doubt = f"this model is not better than that by more than chance (McNemar, exact, p = {p_value:.2g})"
    return [f"Always answering {code(names[guess])} {often}, and {doubt}."]


def confusion_of(evaluation: Evaluation) -> tuple[np.ndarray, list[str]]:
    """Return the confusion matrix, true by predicted, and the class names; empty if there is none."""
    counts = np.array(evaluation.scores.get("confusion") or np.zeros((0, 0)), int)
    return counts, [str(name) for name in evaluation.scores.get("label_names") or range(len(counts))]


def tables(evaluation: Evaluation) -> list[str]:
    """Return what follows the scores: of calibration, of words that were not read, and a row a name."""
    scores, found = evaluation.scores, list[str]()
    if "temperature" in scores:
        before, after = percent(scores["ece"]), percent(scores["ece_calibrated"])
        fitted = f"at temperature {scores['temperature']:.2f}, fitted on the validation split"
        found.append(f"Calibration error {before}; {after} for the probabilities of `predict --calibrated`, {fitted}.")
    if n := scores.get("n_words_cut"):
        found.append(f"{counted(n, 'words')} beyond the longest text, or without a token, are not read.")
    for key, unit in (("per_class", "class"), ("per_label", "label")):
        if 1 <= len(rows := scores.get(key) or []) <= MOST_ROWS:
            found.append(precision_table(unit, rows))
    return found


# --- what the headlines are computed from ----------------------------------------------------------------------


def counts_of_labels(predictions: Predictions) -> np.ndarray:
    """Return of each text how many labels are rightly answered, wrongly answered, and missed, (N, 3)."""
    sets = ((set(row["truth"]), set(row["labels"])) for row in predictions)
    return np.array([(len(true & found), len(found - true), len(true - found)) for true, found in sets], float)


def counts_of_numbers(predictions: Predictions) -> np.ndarray:
    """Return of each text its absolute error and 1, (N, 2)."""
    return np.array([(abs(float(row["number"]) - float(row["truth"])), 1) for row in predictions], float)


def counts_of_spans(predictions: Predictions) -> np.ndarray:
    """Return of each sentence the counts of spans and of tags, (N, 5)."""
    return tag_counts(*([str(row[key]).split() for row in predictions] for key in ("truth", "tags")))


MICRO_F1 = Scoring("micro_f1", counts_of_labels, f1, unit="texts")
MAE = Scoring("mae", counts_of_numbers, ratio, best=0.0, sign=-1, unit="texts")
SPAN_F1 = Scoring("span_f1", counts_of_spans, f1, unit="sentences")
TAG_ACCURACY = Scoring("tag_accuracy", lambda rows: counts_of_spans(rows)[:, 3:], share, unit="sentences")

# --- reports ---------------------------------------------------------------------------------------------------

BASELINES = {
    "majority": "majority class",
    "frequent": "most frequent answer",
    "mean": "mean of the training numbers",
    "tfidf_logistic": "TF-IDF + logistic regression",
    "tfidf_ridge": "TF-IDF + ridge regression",
    "window": "linear model of a window",
    "probe": "frozen encoder + linear model",
}
RIVALS = tuple(name for name in BASELINES if name != "majority")
ENCODER = TaskReport(family="encoder", baselines=BASELINES, rivals=RIVALS, details=tables)
CLASSIFY = replace(
    ENCODER,
    model_name="text classifier",
    pipeline_tag="text-classification",
    loss_unit="nats an example",
    better_truncation="head+tail",
    table_metrics=("accuracy", "macro_f1", "roc_auc", "ece", "log_loss"),
    plots={
        "confusion": (confusion_matrix, "What is taken for what."),
        "reliability": (reliability, "Confidence against accuracy, with 95% intervals."),
    },
    limits="It knows its classes and nothing else: any text gets one of them, also one unlike its training data.",
    comparison_keys=("truth", "label"),
    cautions=no_better_than_guessing,
)
MULTILABEL = replace(
    CLASSIFY,
    model_name="text classifier of several labels",
    loss_unit="nats per label and text",
    metrics=(
        Metric("micro_f1", "Micro F1", "0–100%, over the decisions of all labels", percent),
        Metric("all_right", "All labels right", "share of texts whose labels are all right", percent),
        Metric("log_loss", "Log loss", "nats per label and text", number, False),
    ),
    table_metrics=(),
    guesses_evenly=False,
    limits="It knows its labels and nothing else. Its thresholds suit labels as frequent as in its validation texts.",
    comparison_keys=("truth", "labels"),
    scored=lambda scores: MICRO_F1,
)
UNIT = "in the unit of the numbers, lower is better"
_three_places = "{:.3f}".format
REGRESS = replace(
    MULTILABEL,
    model_name="text regressor",
    loss_unit="squared standard deviations an example",
    metrics=(
        Metric("mae", "Mean absolute error", UNIT, number, False),  # one text that is far off does not choose weights
        Metric("rmse", "Root mean squared error", f"{UNIT}; large errors count more", number, False),
        Metric("r2", "R²", "share of the variance explained; 0 is the mean of these numbers", _three_places),
        Metric("pearson", "Pearson correlation", "−1 to 1; 0 is chance", _three_places),
        Metric("spearman", "Spearman correlation", "−1 to 1; 0 is chance; of the ranks", _three_places),
    ),
    averaged=("number", "numbers"),
    plots={},
    limits="It gives a number for any text, also for one unlike its training data, and does not say how sure it is.",
    comparison_keys=("truth", "number"),
    scored=lambda scores: MAE,
)
TAG = replace(
    ENCODER,
    model_name="tagger of words",
    pipeline_tag="token-classification",
    unit="sentences",
    loss_unit="nats per word",
    metrics=(
        Metric("span_f1", "Span F1", "0–100%, micro: borders and label right", percent),
        Metric("span_precision", "Span precision", "share of answered spans that are right", percent),
        Metric("span_recall", "Span recall", "share of true spans that are answered", percent),
        Metric("tag_accuracy", "Tag accuracy", "share of words whose tag is right", percent),
    ),
    plots={"confusion": (confusion_matrix, "What words of each label are taken for.")},
    limits="It knows the tags of its training data and no other. Running text is cut by white space and punctuation.",
    comparison_keys=("truth", "tags"),
    scored=lambda scores: TAG_ACCURACY if scores.get("headline") == "tag_accuracy" else SPAN_F1,
)
EMBED = replace(
    ENCODER,
    model_name="text encoder",
    pipeline_tag="feature-extraction",
    table_metrics=("loss",),
    limits="It gives a vector for a text, and no answer. It is meant to be fine-tuned.",
)

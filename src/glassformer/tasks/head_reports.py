"""How runs of an encoder are reported, by its head: scores, tables, pictures, what to mind.

A picture takes an evaluation and returns PNG bytes, or None where it holds nothing to draw. The look is in
`utils/plotting.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scores import label_counts, tag_counts
from glassformer.evaluate.scoring import Predictions, Scoring, f1, ratio, share
from glassformer.evaluate.significance import CHANCE, mcnemar, wilson_interval
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.decision import number_text
from glassformer.text.pairs import text_of
from glassformer.text.tags import OUTSIDE, spans_of
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import code, counted, number, percent, table

MOST_ROWS = 60
"""Longest table of classes, labels or tags."""
MOST_POINTS = 2000
"""Examples of numbers that are drawn; of more, as many evenly spaced ones."""
NEARLY_ALL = 0.95
"""Share of equal answers from which a model is said to give one answer."""


# --- pictures ------------------------------------------------------------------------------------------------

MAX_CLASSES_WITH_NUMBERS = 12
"""A confusion matrix of more classes shows colours only."""
MAX_CLASSES = 60
"""Beyond this a confusion matrix is no picture any more."""


def confusion_matrix(evaluation: Evaluation) -> bytes | None:
    """Draw what was taken for what, each row coloured by its own shares."""
    counts = np.asarray(evaluation.scores.get("confusion") or [], dtype=float)
    n = len(counts)
    if counts.ndim != 2 or not 2 <= n <= MAX_CLASSES:
        return None
    names = [str(name) for name in evaluation.scores.get("label_names") or range(n)]
    names = [name if len(name) <= 18 else name[:17] + "…" for name in names]
    longest = max(map(len, names))
    side = 1.15 * n if n <= 4 else min(0.62 * n, 6.5)
    margin = 0.55 + 0.085 * longest
    turned = 45 if longest * n > 9 * side else 0
    below = 0.35 + (0.06 * longest if turned else 0)
    subtitle, wide = "Rows: true class; columns: predicted", max(side + margin + 0.3, 3.9)
    figure, (axes,) = ps.new_figure(side + 0.9 + below, "Confusion", subtitle, width=wide)
    width, height = figure.get_size_inches()
    axes.set_position((margin / width, below / height, side / width, side / height))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("paper-accent", [ps.PAPER, "#e7b9a8", ps.ACCENT])
    axes.imshow(shares, cmap=colours, vmin=0, vmax=1, aspect="equal")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    # A little over half of a row, in points.
    label: Any = {"fontsize": min(10.0, 0.55 * 72 * side / n), "parse_math": False, "color": ps.INK}
    axes.set_xticks(np.arange(n), names, rotation=turned, ha="right" if turned else "center", **label)
    axes.set_yticks(np.arange(n), names, **label)
    axes.tick_params(length=0)
    if n <= MAX_CLASSES_WITH_NUMBERS:
        for (row, column), share in np.ndenumerate(shares):
            text = f"{counts[row, column]:,.0f}" + (f"\n{100 * share:.1f}%" if n <= 4 else "")
            colour = ps.PAPER if share > 0.6 else ps.INK
            axes.text(column, row, text, ha="center", va="center", linespacing=1.5, color=colour)
    return ps.png(figure)


def reliability(evaluation: Evaluation) -> bytes | None:
    """Draw accuracy against confidence, with Wilson intervals, over the shares of examples."""
    bins = evaluation.scores.get("calibration") or []
    if not bins:
        return None
    title = f"Is its confidence earned?  Mean gap {percent(evaluation.scores['ece'])}"
    subtitle = "Share right by confidence; below the dashed line it is too sure"
    figure, (axes, shares) = ps.new_figure(4.7, title, subtitle, width=5.0, rows=(4, 1))
    figure.subplots_adjust(hspace=0.14)
    n_classes = max(2, len(evaluation.scores.get("label_names") or []))
    low = math.floor(10 / n_classes + 1e-9) / 10  # below 1/C no class is chosen
    axes.plot([low, 1], [low, 1], color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    confidence, accuracy = (np.array([b[key] for b in bins]) for key in ("confidence", "accuracy"))
    for b in bins:
        interval = wilson_interval(round(b["accuracy"] * b["n"]), b["n"])
        axes.plot([b["confidence"]] * 2, interval, color=ps.ACCENT, linewidth=1.0, alpha=0.55)
    axes.plot(confidence, accuracy, color=ps.ACCENT, linewidth=1.4, marker="o", markersize=4.2, clip_on=False)
    axes.set_xlim(low, 1.0)
    axes.set_ylim(max(0.0, min(low, float(accuracy.min()) - 0.04)), 1.01)
    total = sum(b["n"] for b in bins)
    for b in bins:
        width = b["high"] - b["low"]
        shares.bar(b["low"], b["n"] / total, width, align="edge", color=ps.SOFT, edgecolor=ps.PAPER)
    shares.set_xlabel("confidence in the predicted class")
    tallest = max(b["n"] for b in bins) / total
    shares.set_ylim(0, 1.6 * tallest)  # room for the words above the bars
    ps.note(shares, (low, 1.6 * tallest), "share of examples", offset=(4, -8))
    for axis in (axes.yaxis, shares.yaxis, shares.xaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    shares.locator_params(axis="y", nbins=2)
    return ps.png(figure)


def coverage(evaluation: Evaluation) -> bytes | None:
    """Draw accuracy against the share of texts answered, with Wilson intervals."""
    points = evaluation.scores.get("coverage") or []
    if len(points) < 2:
        return None
    title, subtitle = "What if it answers only when sure?", "Share right among the texts answered"
    figure, (axes,) = ps.new_figure(3.6, title, subtitle, width=5.0)
    answered, accuracy = (np.array([point[key] for point in points]) for key in ("coverage", "accuracy"))
    low, high = np.array([point["ci95"] for point in points]).T
    axes.fill_between(answered, low, high, color=ps.ACCENT, alpha=0.15, linewidth=0)
    axes.plot(answered, accuracy, color=ps.ACCENT, linewidth=1.4, marker="o", markersize=3.2, clip_on=False)
    axes.set_xlim(0, 1)
    axes.set_ylim(max(0.0, float(low.min()) - 0.02), 1.005)
    axes.set_xlabel("share of texts answered")
    for axis in (axes.yaxis, axes.xaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    return ps.png(figure)


def scatter(evaluation: Evaluation) -> bytes | None:
    """Draw predicted against true numbers; the dashed line is where both are equal."""
    points = np.array(evaluation.scores.get("scatter") or [], dtype=float)
    if points.ndim != 2 or len(points) < 2:
        return None
    mae = evaluation.value("mae")
    title = "Predicted and true numbers" + ("" if mae is None else f": mean error {number(mae)}")
    figure, (axes,) = ps.new_figure(4.6, title, "Each point is a text; on the dashed line both are equal", width=5.0)
    low, high = float(points.min()), float(points.max())
    margin = 0.04 * (high - low) or 1.0
    axes.plot([low, high], [low, high], color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    faint = min(0.8, max(0.15, 60 / len(points)))
    axes.plot(*points.T, color=ps.ACCENT, linestyle="", marker="o", markersize=3.4, alpha=faint, markeredgewidth=0)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("true number")
    axes.set_ylabel("predicted number")
    return ps.png(figure)


def scatter_points(truth: np.ndarray, predicted: np.ndarray) -> list[list[float]]:
    """Return pairs of true and predicted numbers to draw, at most `MOST_POINTS`."""
    rows = np.unique(np.linspace(0, len(truth) - 1, min(len(truth), MOST_POINTS)).round().astype(int))
    return np.stack([truth[rows], predicted[rows]], axis=1).tolist()


def calibration_sentence(evaluation: Evaluation) -> list[str]:
    """Say what the temperature that validation chose does to the calibration error, where there is one."""
    temperature, before, after = (evaluation.value(name) for name in ("temperature", "ece", "ece_calibrated"))
    if before is not None and temperature is None:
        return ["No temperature was fitted: that takes 50 validation texts, not all of them answered rightly."]
    if temperature is None or before is None or after is None:
        return []
    return [
        f"Calibration error {percent(before)}; {percent(after)} for the probabilities of `predict --calibrated`, at "
        f"temperature {temperature:.2f}, which was fitted on the validation split."
    ]


def precision_table(unit: str, rows: Sequence[JsonObject]) -> str:
    """Return precision, recall and F1 of each class, or label with its threshold, as Markdown.

    `unit` is the header of their names.
    """
    cells = [
        [row["label"], percent(row["precision"]), percent(row["recall"]), percent(row["f1"]), f"{row['support']:,}"]
        for row in rows
    ]
    header = [unit, "precision", "recall", "F1", "examples"]
    if rows and all("threshold" in row for row in rows):
        header.append("threshold")
        cells = [[*c, percent(r["threshold"])] for c, r in zip(cells, rows, strict=True)]
    return table(header, cells)


def one_answer(evaluation: Evaluation) -> list[str]:
    """Say so where nearly every text gets the same label though many have another."""
    confusion, names = confusion_of(evaluation)
    answers, n = confusion.sum(axis=0), int(confusion.sum())
    if n == 0:
        return []
    label = int(answers.argmax())
    others, n_answered = n - int(confusion[label].sum()), n - int(answers[label])
    if n - n_answered < NEARLY_ALL * n or n_answered >= others / 2:
        return []
    all_of = "every text" if n_answered == 0 else f"{n - n_answered:,} of {n:,} texts"
    return [
        f"It answers {code(names[label])} to {all_of}, whatever they say, and {others:,} of {n:,} are something else. "
        "It has not learned the task: give more examples, of the rarer classes above all, train longer, or look at the "
        "labels."
    ]


def no_better_than_guessing(evaluation: Evaluation) -> list[str]:
    """Say so where always answering the majority class is right as often, or chance explains the difference."""
    confusion, names = confusion_of(evaluation)
    if (n := int(confusion.sum())) == 0:
        return []
    guess = int(evaluation.baselines.get("majority", {}).get("label", confusion.sum(axis=1).argmax()))
    right, right_by_guessing = int(np.trace(confusion)), int(confusion[guess].sum())
    both = int(confusion[guess, guess])
    p_value = mcnemar(right - both, right_by_guessing - both)
    if right > right_by_guessing and p_value < CHANCE:
        return []
    often = f"would be right in {percent(right_by_guessing / n)} of {n:,} texts"
    doubt = f"this model is not better than that by more than chance (McNemar, exact, p = {p_value:.2g})"
    return [f"Always answering {code(names[guess])} {often}, and {doubt}."]


def confusion_of(evaluation: Evaluation) -> tuple[np.ndarray, list[str]]:
    """Return the confusion matrix, true by predicted, and the class names; empty if there is none."""
    counts = np.array(evaluation.scores.get("confusion") or np.zeros((0, 0)), int)
    return counts, [str(name) for name in evaluation.scores.get("label_names") or range(len(counts))]


def marked(text: str, tags: str) -> str:
    """Return words with their spans in brackets, [red boat: THING]; with plain tags each word as word/tag."""
    words, its = text.split(), tags.split()
    spans = spans_of(its)
    if not spans and set(its) - {OUTSIDE}:
        return " ".join(f"{word}/{tag}" for word, tag in zip(words, its, strict=False))
    pieces, done = [], 0
    for start, end, label in spans:
        pieces += [*words[done:start], f"[{' '.join(words[start:end])}: {label}]"]
        done = end
    return " ".join([*pieces, *words[done:]])


def tables(evaluation: Evaluation) -> list[str]:
    """Return what follows the scores: of calibration, of words that were not read, of numbers, and a row a name."""
    scores, found = evaluation.scores, list[str]()
    if "ece" in scores or "temperature" in scores:
        found += calibration_sentence(evaluation)
    if n := scores.get("n_words_cut"):
        found.append(f"{counted(n, 'words')} beyond the longest text, or without a token, are not read.")
    if "truth_mean" in scores:
        mean, sd = number(scores["truth_mean"]), number(scores["truth_sd"])
        found.append(f"The true numbers have mean {mean} and standard deviation {sd}.")
    for key, unit in (("per_class", "class"), ("per_label", "label")):
        if 1 <= len(rows := scores.get(key) or []) <= MOST_ROWS:
            found.append(precision_table(unit, rows))
    return found


# --- reports ---------------------------------------------------------------------------------------------------


def examples_of(
    true: Callable[[JsonObject], str], answered: Callable[[JsonObject], str]
) -> Callable[[Sequence[JsonObject]], str]:
    """Return what writes texts as a table with what is true of them and what was answered."""

    def shown(examples: Sequence[JsonObject]) -> str:
        rows = [[text_of(each), true(each), answered(each)] for each in examples]
        return table(["text", "true", "predicted"], rows, left=3)

    return shown


def tag_examples(examples: Sequence[JsonObject]) -> str:
    """Return sentences with their spans marked as a table."""
    rows = [[marked(row["text"], row.get("truth", "")), marked(row["text"], row["tags"])] for row in examples]
    return table(["true", "predicted"], rows, left=2)


def score_labels(scores: JsonObject) -> Scoring:
    """Return the counts of labels by text."""

    def counts(predictions: Predictions) -> np.ndarray:
        names = sorted({name for row in predictions for name in (*row["labels"], *row["truth"])})
        sets = ([[name in row[key] for name in names] for row in predictions] for key in ("truth", "labels"))
        return label_counts(*(np.array(each, bool).reshape(len(predictions), -1) for each in sets))

    return Scoring("micro_f1", counts, f1, unit="texts")


def score_numbers(scores: JsonObject) -> Scoring:
    """Return the errors of numbers."""

    def counts(predictions: Predictions) -> np.ndarray:
        return np.array([(abs(float(row["number"]) - float(row["truth"])), 1) for row in predictions], float)

    return Scoring("mae", counts, ratio, best=0.0, sign=-1, unit="texts")


def score_tags(scores: JsonObject) -> Scoring:
    """Return the counts of spans, or of plain tags, by sentence."""
    plain = scores.get("headline") == "tag_accuracy"

    def counts(predictions: Predictions) -> np.ndarray:
        found = tag_counts(*([str(row[key]).split() for row in predictions] for key in ("truth", "tags")))
        return found[:, 3:] if plain else found

    metric, score = ("tag_accuracy", share) if plain else ("span_f1", f1)
    return Scoring(metric, counts, score, unit="sentences")


CLASSIFY = TaskReport(
    model_name="text classifier",
    pipeline_tag="text-classification",
    family="encoder",
    loss_unit="nats an example",
    better_truncation="head+tail",
    headline="accuracy",
    table_metrics=("accuracy", "macro_f1", "roc_auc", "ece", "log_loss"),
    baselines={
        "majority": "majority class",
        "tfidf_logistic": "TF-IDF + logistic regression",
        "probe": "frozen encoder + logistic regression",
    },
    rivals=("tfidf_logistic", "probe"),
    plots={
        "confusion": (confusion_matrix, "What is taken for what."),
        "reliability": (reliability, "Confidence against accuracy, with 95% intervals."),
        "coverage": (
            coverage,
            "Accuracy of the answers it is most sure of, by the share of texts answered, with 95% intervals.",
        ),
    },
    limits="It knows the classes below and nothing else: any text gets one of them, and a text unlike its "
    "training data may get one with unearned confidence.",
    comparison_keys=("truth", "label"),
    details=tables,
    cautions=lambda evaluation: [*one_answer(evaluation), *no_better_than_guessing(evaluation)],
    example_table=examples_of(lambda e: e.get("truth", ""), lambda e: f"{e['label']} ({percent(e['probability'])})"),
    example_text='"I loved every minute" --json',
)
MULTILABEL = replace(
    CLASSIFY,
    model_name="text classifier of several labels",
    loss_unit="nats per label and text",
    metrics=(
        Metric("micro_f1", "Micro F1", "0–100%, over the decisions of all labels", percent),
        Metric("macro_f1", "Macro F1", "0–100%, mean over the labels", percent),
        Metric("all_right", "All labels right", "share of texts whose labels are all right", percent),
        Metric("log_loss", "Log loss", "nats per label and text", number, False),
    ),
    headline="micro_f1",
    table_metrics=(),
    guesses_evenly=False,
    baselines={
        "frequent": "most frequent labels",
        "tfidf_logistic": "TF-IDF + logistic regression",
        "probe": "frozen encoder + logistic regression",
    },
    rivals=(),
    limits="It knows the labels below and nothing else. Its thresholds suit its validation texts; where labels are "
    "rarer or more frequent than there, others would be better.",
    comparison_keys=("truth", "labels"),
    example_table=examples_of(lambda e: "; ".join(e["truth"]), lambda e: "; ".join(e["labels"])),
    scored=score_labels,
)
UNIT = "in the unit of the numbers, lower is better"
OF_CORRELATION = "−1 to 1; 0 is chance"
_three_places = "{:.3f}".format
REGRESS = replace(
    MULTILABEL,
    model_name="text regressor",
    loss_unit="squared standard deviations an example",
    metrics=(
        Metric("mae", "Mean absolute error", UNIT, number, False),
        Metric("rmse", "Root mean squared error", f"{UNIT}; large errors count more", number, False),
        Metric("r2", "R²", "share of the variance explained; 0 is the mean of these numbers", _three_places),
        Metric("pearson", "Pearson correlation", OF_CORRELATION, _three_places),
        Metric("spearman", "Spearman correlation", f"{OF_CORRELATION}; of the ranks", _three_places),
    ),
    headline="mae",
    averaged=("number", "numbers"),
    probe="a ridge regression",
    baselines={
        "mean": "mean of the training numbers",
        "tfidf_ridge": "TF-IDF + ridge regression",
        "probe": "frozen encoder + ridge regression",
    },
    plots={"scatter": (scatter, "Predicted against true numbers; the dashed line is where both are equal.")},
    limits="It gives a number for any text, also for one unlike its training data, and does not say how sure it is. Of "
    "numbers beyond the range of those it was trained on it has seen nothing.",
    comparison_keys=("truth", "number"),
    example_table=examples_of(lambda e: number_text(e["truth"]), lambda e: number_text(e["number"])),
    scored=score_numbers,
)
TAG = TaskReport(
    model_name="tagger of words",
    pipeline_tag="token-classification",
    family="encoder",
    unit="sentences",
    loss_unit="nats per word",
    metrics=(
        Metric("span_f1", "Span F1", "0–100%, micro: borders and label right", percent),
        Metric("span_precision", "Span precision", "share of answered spans that are right", percent),
        Metric("span_recall", "Span recall", "share of true spans that are answered", percent),
        Metric("tag_accuracy", "Tag accuracy", "share of words whose tag is right", percent),
        Metric("macro_f1", "Macro F1", "0–100%, mean over the labels", percent),
    ),
    headline="span_f1",
    baselines={"frequent": "most frequent tag of each word", "window": "linear model of a window"},
    plots={"confusion": (confusion_matrix, "What words of each label are taken for.")},
    limits="It knows the tags of its training data and no other. It tags words as its training data cuts them; running "
    "text is cut by white space and punctuation.",
    comparison_keys=("truth", "tags"),
    details=tables,
    example_table=tag_examples,
    example_text='"Two men sit in a red boat." --json',
    scored=score_tags,
)
EMBED = TaskReport(
    model_name="text encoder",
    pipeline_tag="feature-extraction",
    family="encoder",
    headline="loss",
    limits="It gives a vector for a text, and no answer. It is meant to be fine-tuned: "
    "glassformer train classify --init-from with the folder of its run.",
)

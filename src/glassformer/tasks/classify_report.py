"""How runs of a classifier are reported: scores, confusions, calibration.

Each function takes an evaluation and returns PNG bytes, or None where it holds nothing to draw. The look is in
`utils/plotting.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from glassformer.evaluate.significance import CHANCE, mcnemar, wilson_interval
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import class_lines
from glassformer.text.pairs import text_of
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import code, percent, table

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


MOST_CLASSES = 30
"""Longest table of classes."""
NEARLY_ALL = 0.95
"""Share of equal answers from which a model is said to give one answer."""


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
        header, cells = (
            [*header, "threshold"],
            [[*c, percent(r["threshold"])] for c, r in zip(cells, rows, strict=True)],
        )
    return table(header, cells)


class ClassifyReport(TaskReport):
    """Labels with their probabilities; a bag of words is what they have to beat."""

    model_name = "text classifier"
    pipeline_tag = "text-classification"
    family = "encoder"
    loss_unit = "nats an example"
    better_truncation = "head+tail"
    headline = "accuracy"
    table_metrics = ("accuracy", "macro_f1", "roc_auc", "ece", "log_loss")
    baselines: ClassVar = {
        "majority": "majority class",
        "tfidf_logistic": "TF-IDF + logistic regression",
        "hybrid": "averaged with TF-IDF",
        "probe": "frozen encoder + logistic regression",
    }
    captions: ClassVar = {
        "confusion": "What is taken for what.",
        "reliability": "Confidence against accuracy, with 95% intervals.",
        "coverage": "Accuracy of the answers it is most sure of, by the share of texts answered, with 95% intervals.",
    }
    limits = (
        "It knows the classes below and nothing else: any text gets one of them, and a text unlike its "
        "training data may get one with unearned confidence."
    )
    comparison_keys = ("truth", "label")

    def details(self, evaluation: Evaluation) -> list[str]:
        classes = evaluation.scores.get("per_class") or []
        sentences = calibration_sentence(evaluation)
        if not 2 <= len(classes) <= MOST_CLASSES:
            return sentences
        return [*sentences, precision_table("class", classes)]

    def warnings(self, evaluation: Evaluation) -> list[str]:
        """Return warnings about a model that is not better than a trivial one.

        It predicts only one class, or its score is no better than the majority class or a bag of words.
        """
        warnings = [*one_answer(evaluation), *no_better_than_guessing(evaluation)]
        baseline = evaluation.baselines.get("tfidf_logistic", {}).get("accuracy")
        accuracy = evaluation.value("accuracy")
        if baseline is not None and accuracy is not None and baseline >= accuracy:
            warnings.append(f"A bag of words does as well or better here ({percent(baseline)}).")
        probe = evaluation.baselines.get("probe", {}).get("accuracy")
        if probe is not None and accuracy is not None and probe >= accuracy:
            warnings.append(
                f"Fine-tuning gained nothing: the encoder as it was does as well or better ({percent(probe)})."
            )
        return warnings

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        drawn = {"confusion": confusion_matrix(evaluation), "reliability": reliability(evaluation)}
        drawn["coverage"] = coverage(evaluation)
        return {name: image for name, image in drawn.items() if image is not None}

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        rows = [[text_of(e), e.get("truth", ""), f"{e['label']} ({percent(e['probability'])})"] for e in examples]
        return table(["text", "true", "predicted"], rows, left=3)

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} "I loved every minute" --json'

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return class_lines(answer)


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
    sentence = (
        f"Always answering {code(names[guess])} would be right in {percent(right_by_guessing / n)} of {n:,} texts"
    )
    return [
        f"{sentence}, and this model is not better than that by more than chance (McNemar, exact, p = {p_value:.2g})."
    ]


def confusion_of(evaluation: Evaluation) -> tuple[np.ndarray, list[str]]:
    """Return the confusion matrix, true by predicted, and the class names; empty if there is none."""
    counts = np.array(evaluation.scores.get("confusion") or np.zeros((0, 0)), int)
    return counts, [str(name) for name in evaluation.scores.get("label_names") or range(len(counts))]

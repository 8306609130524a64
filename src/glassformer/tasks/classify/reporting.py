"""How runs of a classifier are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from glassformer.evaluate.significance import CHANCE, mcnemar
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.classify.plots import confusion_matrix, reliability
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import class_lines
from glassformer.utils.formatting import code, percent, table

MOST_CLASSES = 30
"""Longest table of classes."""
NEARLY_ALL = 0.95
"""Share of equal answers from which a model is said to give one answer."""


class ClassifyReport(TaskReport):
    """Labels with their probabilities; a bag of words is what they have to beat."""

    model_name = "text classifier"
    pipeline_tag = "text-classification"
    family = "encoder"
    loss_unit = "nats an example"
    truncation_hint = "a larger --text.max-len, or --text.truncate head+tail"
    headline = "accuracy"
    table_metrics = ("accuracy", "macro_f1", "roc_auc", "ece", "log_loss")
    baselines: ClassVar = {
        "majority": "majority class",
        "tfidf_logistic": "TF-IDF + logistic regression",
        "hybrid": "averaged with TF-IDF",
    }
    captions: ClassVar = {
        "confusion": "What is taken for what.",
        "reliability": "Confidence against accuracy, with 95% intervals.",
    }
    limits = (
        "It knows the classes below and nothing else: any text gets one of them, and a text unlike its "
        "training data may get one with unearned confidence."
    )
    comparison_keys = ("truth", "label")

    def details(self, evaluation: Evaluation) -> list[str]:
        classes = evaluation.scores.get("per_class") or []
        if not 2 <= len(classes) <= MOST_CLASSES:
            return []
        rows = [
            [c["label"], percent(c["precision"]), percent(c["recall"]), percent(c["f1"]), f"{c['support']:,}"]
            for c in classes
        ]
        return [table(["class", "precision", "recall", "F1", "examples"], rows)]

    def warnings(self, evaluation: Evaluation) -> list[str]:
        """Return warnings about a model that is not better than a trivial one.

        It predicts only one class, or its score is no better than the majority class or a bag of words.
        """
        warnings = [*one_answer(evaluation), *no_better_than_guessing(evaluation)]
        baseline = evaluation.baselines.get("tfidf_logistic", {}).get("accuracy")
        accuracy = evaluation.value("accuracy")
        if baseline is not None and accuracy is not None and baseline >= accuracy:
            warnings.append(f"A bag of words does as well or better here ({percent(baseline)}).")
        return warnings

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        drawn = {"confusion": confusion_matrix(evaluation), "reliability": reliability(evaluation)}
        return {name: image for name, image in drawn.items() if image is not None}

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        rows = [[e["text"], e.get("truth", ""), f"{e['label']} ({percent(e['probability'])})"] for e in examples]
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

"""How runs of a classifier are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from glassformer.runs.values import Evaluation, Facts
from glassformer.style.words import percent, table
from glassformer.tasks.classify.plots import confusion_matrix, reliability
from glassformer.tasks.telling import Telling

MOST_CLASSES = 30
"""Longest table of classes."""


class ClassifyTelling(Telling):
    """Labels with their probabilities; a bag of words is what they have to beat."""

    what = "text classifier"
    family = "encoder"
    loss_unit = "nats an example"
    cut_remedy = "a larger --text.max-len, or --text.truncate head+tail"
    headline = "accuracy"
    shown = ("accuracy", "macro_f1", "roc_auc", "ece", "log_loss")
    baselines: ClassVar = {"majority": "commonest class", "tfidf_logistic": "TF-IDF + logistic regression"}
    captions: ClassVar = {
        "confusion": "What is taken for what.",
        "reliability": "Confidence against accuracy, with 95% intervals.",
    }
    limits = (
        "It knows the classes below and nothing else: any text gets one of them, and a text unlike its "
        "training data may get one with unearned confidence."
    )
    compared = ("truth", "label")

    def details(self, evaluation: Evaluation) -> list[str]:
        classes = evaluation.scores.get("per_class") or []
        if not 2 <= len(classes) <= MOST_CLASSES:
            return []
        rows = [[c["label"], percent(c["precision"]), percent(c["recall"]), percent(c["f1"]), f"{c['support']:,}"]
                for c in classes]  # fmt: skip
        return [table(["class", "precision", "recall", "F1", "examples"], rows)]

    def caveats(self, evaluation: Evaluation) -> list[str]:
        yardstick = evaluation.baselines.get("tfidf_logistic", {}).get("accuracy")
        accuracy = evaluation.value("accuracy")
        if yardstick is None or accuracy is None or yardstick < accuracy:
            return []
        return [f"A bag of words does as well or better here ({percent(yardstick)})."]

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        drawn = {"confusion": confusion_matrix(evaluation), "reliability": reliability(evaluation)}
        return {name: image for name, image in drawn.items() if image is not None}

    def example_table(self, examples: Sequence[Facts]) -> str:
        rows = [
            [e["text"], e.get("truth", ""), f"{e['label']} ({percent(e['probability'])})"] for e in examples
        ]
        return table(["text", "true", "predicted"], rows, left=3)

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} "I loved every minute" --json'

    def answer_lines(self, answer: Facts) -> list[str]:
        return [f"{answer['label']}\t{answer['probability']:.4f}"]

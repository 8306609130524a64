"""How runs of a model that tags words are reported: scores of spans and tags, a table by label, marked examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import Predictions, Scoring
from glassformer.evaluate.tagging import HEADLINES, all_counts
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.classify_report import confusion_matrix, precision_table
from glassformer.tasks.reporting import TaskReport
from glassformer.text.tags import OUTSIDE, spans_of, tags_lines
from glassformer.utils.formatting import counted, percent, table

MOST_LABELS = 60
"""Longest table of labels."""


class TagReport(TaskReport):
    """Spans with their labels; a linear model of a window of words is what it has to beat."""

    model_name = "tagger of words"
    pipeline_tag = "token-classification"
    family = "encoder"
    unit = "sentences"
    loss_unit = "nats per word"
    metrics = (
        Metric("span_f1", "Span F1", "0–100%, micro: borders and label right", percent),
        Metric("span_precision", "Span precision", "share of answered spans that are right", percent),
        Metric("span_recall", "Span recall", "share of true spans that are answered", percent),
        Metric("tag_accuracy", "Tag accuracy", "share of words whose tag is right", percent),
        Metric("macro_f1", "Macro F1", "0–100%, mean over the labels", percent),
    )
    table_metrics = ("span_f1", "span_precision", "span_recall", "tag_accuracy", "macro_f1")
    headline = "span_f1"
    baselines: ClassVar = {"frequent": "most frequent tag of each word", "window": "linear model of a window"}
    captions: ClassVar = {"confusion": "What words of each label are taken for."}
    limits = (
        "It knows the tags of its training data and no other. It tags words as its training data cuts them; running "
        "text is cut by white space and punctuation."
    )
    comparison_keys = ("truth", "tags")

    def details(self, evaluation: Evaluation) -> list[str]:
        found: list[str] = []
        if n := evaluation.scores.get("n_words_cut"):
            found.append(f"{counted(n, 'words')} beyond the longest text, or without a token, are not read.")
        labels = evaluation.scores.get("per_label") or []
        return [*found, precision_table("label", labels)] if 1 <= len(labels) <= MOST_LABELS else found

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        image = confusion_matrix(evaluation)
        return {} if image is None else {"confusion": image}

    def warnings(self, evaluation: Evaluation) -> list[str]:
        return self.beaten(evaluation)

    def scoring(self, scores: JsonObject) -> Scoring:
        """Return the counts of spans and tags by sentence, of which the headline is a function."""

        def counts(predictions: Predictions) -> np.ndarray:
            return all_counts(*([str(row[key]).split() for row in predictions] for key in ("truth", "tags")))

        name = scores.get("headline") or self.headline
        return Scoring(name, counts, dict(HEADLINES.values())[name], unit="sentences")

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        rows = [[marked(row["text"], row.get("truth", "")), marked(row["text"], row["tags"])] for row in examples]
        return table(["true", "predicted"], rows, left=2)

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} "Two men sit in a red boat." --json'

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return tags_lines(answer)


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

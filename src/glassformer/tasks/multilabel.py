"""Classification of texts that may have several labels, or none: a decision for each label, on one encoder.

A label is answered where its probability reaches its threshold, which is chosen on the validation split.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch
from glassformer.data.corpus import CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import LABELS, TEXT, DataSchema, Rows
from glassformer.data.datasets.labels import labels_of
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DataError
from glassformer.evaluate import multilabel
from glassformer.evaluate.classification import FEWEST_TO_CALIBRATE, calibrated_scores, calibration, fit_temperature
from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import Predictions, Scoring
from glassformer.models.encoder_models import TextClassifier
from glassformer.models.ensemble import members_of
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks import register
from glassformer.tasks.base import CLASSES, SEVERAL_LABELS
from glassformer.tasks.classify import Classify, class_names, known_labels, suggest, suggest_from_pretrained
from glassformer.tasks.classify_report import calibration_sentence, precision_table
from glassformer.tasks.probe import fit_probes
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import check_probabilities
from glassformer.text.decision import labels_answer, labels_lines, yes_and_no
from glassformer.text.ngrams import mean_words
from glassformer.text.pairs import text_of
from glassformer.utils.formatting import counted, number, percent, table

logger = logging.getLogger(__name__)

MOST_LABELS = 60
"""Longest table of labels."""


def check_label_sets(rows: Mapping[str, Rows], diagnostics: Diagnostics, known: Sequence[str] | None = None) -> None:
    """Note labels that are not among the known ones, by file and line; without any those of training are known."""
    if known is None:
        try:
            known = label_names(rows["train"].answer)
        except DataError as error:
            diagnostics.error(rows["train"].path, 0, "label", error.message)
            return
    is_known = known_labels(known)
    for part in rows.values():
        for line, answer in zip(part.lines, part.answer, strict=True):
            for label in labels_of(answer):
                if unknown := is_known(label):
                    diagnostics.error(part.path, line, "label", unknown)


def label_names(answers: Sequence[str]) -> list[str]:
    """Return the sorted labels that occur; raise DataError for fewer than two."""
    return class_names([label for answer in answers for label in labels_of(answer)])


class MultiLabelReport(TaskReport):
    """Labels with their probabilities; a logistic regression for each label is what they have to beat."""

    model_name = "text classifier of several labels"
    pipeline_tag = "text-classification"
    family = "encoder"
    loss_unit = "nats per label and text"
    better_truncation = "head+tail"
    metrics = (
        Metric("micro_f1", "Micro F1", "0–100%, over the decisions of all labels", percent),
        Metric("macro_f1", "Macro F1", "0–100%, mean over the labels", percent),
        Metric("all_right", "All labels right", "share of texts whose labels are all right", percent),
        Metric("ranking_precision", "Ranking precision", "label ranking average precision, 0–100%", percent),
        Metric("log_loss", "Log loss", "nats per label and text", number, False),
    )
    headline = "micro_f1"
    guesses_evenly = False
    baselines = {  # noqa: RUF012
        "frequent": "most frequent labels",
        "tfidf_logistic": "TF-IDF + logistic regression",
        "probe": "frozen encoder + logistic regression",
    }
    limits = (
        "It knows the labels below and nothing else. Its thresholds suit its validation texts; where labels are rarer "
        "or more frequent than there, others would be better."
    )
    comparison_keys = ("truth", "labels")

    def details(self, evaluation: Evaluation) -> list[str]:
        labels = evaluation.scores.get("per_label") or []
        sentences = calibration_sentence(evaluation)
        if not 1 <= len(labels) <= MOST_LABELS:
            return sentences
        return [*sentences, precision_table("label", labels)]

    def warnings(self, evaluation: Evaluation) -> list[str]:
        return self.beaten(evaluation)

    def scoring(self, scores: JsonObject) -> Scoring:
        def counts(predictions: Predictions) -> np.ndarray:
            sets = ((set(row["labels"]), set(row["truth"])) for row in predictions)
            return np.array([(len(a & t), len(a - t), len(t - a)) for a, t in sets], float)

        return Scoring("micro_f1", counts, lambda sums: multilabel.micro_f1(*sums), unit="texts")

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        rows = [[text_of(e), "; ".join(e.get("truth", ())), "; ".join(e["labels"])] for e in examples]
        return table(["text", "true", "predicted"], rows, left=3)

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return labels_lines(answer)


@register
class MultiLabel(Classify):
    """Validated on micro F1 at the best threshold of the validation texts."""

    name = "multilabel"
    schema = DataSchema("multilabel", (TEXT, LABELS), check=check_label_sets)
    metric = "micro_f1"
    report = MultiLabelReport()
    ignores = Classify.ignores - SEVERAL_LABELS | CLASSES
    explain_as = "multilabel_classifier"

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        """Return the settings that suit as many texts of so many classes, of which none are two alone."""
        train = data.train
        n, names, n_words = len(train), label_names(train.answers), mean_words(train.text)
        suggested = suggest(n, max(3, len(names)), n_words)
        # Each label is met in few of the texts: on validation, twice the passes and batches of half the size gained 2
        # points of micro F1 on 6,000 texts of 150 labels.
        suggested["epochs"] = min(20.0, 2 * suggested["epochs"])
        suggested["batch_size"] = min(32, suggested["batch_size"])
        if config.text.tokenizer != "word":
            suggested["bigrams"] = 0
        if config.train.init_from and config.text.tokenizer == "imported":
            suggested |= suggest_from_pretrained(n, max(3, len(names)))
        n_labels = sum(len(labels_of(answer)) for answer in train.answers)
        size = f"{n:,} texts, {len(names)} labels, {n_labels / max(1, n):.1f} a text, {n_words:.0f} words each"
        return suggested, size

    @classmethod
    def classes_of(cls, train: Split) -> list[str]:
        try:
            return label_names(train.answers)
        except DataError as error:
            raise DataError(f"{train.source}: {error.message}", error.hint) from None

    @property
    def eval_schema(self) -> DataSchema:
        return replace(self.schema, check=partial(check_label_sets, known=self.labels))

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids and n-grams as a classifier's; target, the numbers of the labels of each text."""
        super().encode_into(writer, Split(split.text, None, split.source), training)
        if split.answer is not None:
            target = writer.numbers("target")
            for row in self._truth(split):
                target.append(np.flatnonzero(row).tolist())

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch; labels (B, L) are 1 where a text has the label; all 0 for texts without known labels."""
        batch = super().make_batch(corpus, index)
        labels = torch.zeros(len(index), len(self.labels), dtype=torch.long)
        if corpus.target is not None:
            for row, i in enumerate(index):
                labels[row, torch.from_numpy(np.array(corpus.target[i], np.int64))] = 1
        return replace(batch, labels=labels, n_labels=labels.numel())

    def build_single_model(self) -> TextClassifier:
        c, t = self.config, self.tokenizer
        sizes = t.vocab_size, len(self.labels), c.text.max_len, len(t.ngrams) if t.ngrams else 0
        return TextClassifier(c.model, *sizes, t.bigrams, several=True).of_pairs(t.separator)

    def initialise_output(self, model: nn.Module, corpus: EncodedCorpus) -> None:
        """Begin with each label as probable as it is in training: most are rare, and 0.5 would be far off."""
        shares = (self._corpus_truth(corpus).sum(axis=0) + 1) / (len(corpus) + 2)
        for member in members_of(model):
            with torch.no_grad():
                cast(nn.Linear, member.head).bias.copy_(torch.from_numpy(np.log(shares / (1 - shares))))

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        logits, truth = self._all_logits(model, corpus, group), self._corpus_truth(corpus)
        loss = cross_entropy_sum(logits, torch.from_numpy(truth).long()).item() / max(1, truth.size)
        p = logits.double().softmax(dim=-1)[..., 1].numpy()
        answered = p >= multilabel.best_threshold(truth.ravel(), p.ravel())
        micro, macro = multilabel.score_of(truth, answered), multilabel.macro_f1(truth, answered)
        return {"loss": loss, "micro_f1": micro, "macro_f1": macro}

    def decided(self, model: nn.Module, corpus: EncodedCorpus) -> MultiLabel:
        """Return the task with the thresholds of the labels, and a temperature, chosen on the validation texts."""
        task, truth, probabilities = copy.copy(self), self._corpus_truth(corpus), self._probabilities(model, corpus)
        temperature = None
        if len(corpus) >= FEWEST_TO_CALIBRATE:
            temperature = fit_temperature(truth.ravel().astype(np.int64), yes_and_no(probabilities.ravel()))
        thresholds = multilabel.choose_thresholds(truth, probabilities)
        task.decision = replace(self.decision, thresholds=thresholds, temperature=temperature)
        return task

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        corpus, truth = self.encode(split, training=False), self._truth(split)
        probabilities = self._probabilities(model, corpus)
        scores = multilabel.score(truth, probabilities, self.decision.answered(probabilities), self.labels)
        decisions = truth.ravel().astype(np.int64), yes_and_no(probabilities.ravel())
        if calibrated := calibrated_scores(*decisions, self.decision.temperature):
            scores |= {"ece": calibration(*decisions)[0]} | calibrated
        for row, threshold in zip(scores["per_label"], self.decision.thresholds_of(self.labels), strict=True):
            row["threshold"] = threshold
        scores |= self._count_cut(corpus, len(split))
        if train is not None:
            logger.info(f"fitting the baselines to {counted(len(train), 'training texts')}")
            known = train.text, self._truth(train), split.text, truth
            scores["baselines"] = multilabel.fit_baselines(*known, pairs=bool(self.tokenizer.separator))
        return scores | self._answers(split, probabilities, [labels_of(answer) for answer in split.answers])

    def _answer(self, text: str, probabilities: np.ndarray) -> dict[str, Any]:
        return labels_answer(self.tokenizer.text_fields(text), probabilities, self.labels, self.decision)

    def _fit_head(self, vectors: np.ndarray, corpus: EncodedCorpus, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weight and bias of a logistic regression for each label, on pooled vectors of the texts at `index`."""
        return fit_probes(vectors, self._corpus_truth(corpus)[index])

    def _truth(self, split: Split) -> np.ndarray:
        """Return (N, L) which labels each text has; raise DataError for a label that training lacks."""
        rows = [labels_of(answer) for answer in split.answers]
        flat = self._numbers(Split([""] * sum(map(len, rows)), [label for row in rows for label in row], split.source))
        truth, numbers = np.zeros((len(rows), len(self.labels)), bool), iter(flat)
        for i, row in enumerate(rows):
            for _ in row:
                truth[i, next(numbers)] = True
        return truth

    def _corpus_truth(self, corpus: EncodedCorpus) -> np.ndarray:
        truth = np.zeros((len(corpus), len(self.labels)), bool)
        for i, numbers in enumerate(corpus.targets):
            truth[i, np.array(numbers, np.int64)] = True
        return truth

    def _probabilities(self, model: nn.Module, corpus: EncodedCorpus) -> np.ndarray:
        return check_probabilities(self._all_logits(model, corpus).double().softmax(dim=-1)[..., 1].numpy())

    def _all_logits(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Return logits (N, L, 2) on the CPU, in the order of the texts."""
        return self._gathered(model, corpus, group, (len(self.labels), 2))

"""Regression: a text in, a number out, on the encoder of a classifier.

The model has one output: how many standard deviations of the training numbers a text's number is from their mean. Mean
and standard deviation are kept with the model, so that every answer is in the units of the data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch
from glassformer.data.corpus import CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import NUMBER, TEXT, DataSchema, Rows
from glassformer.data.datasets.numbers import mean_and_sd, number_rank, why_no_number
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DataError, DivergedError
from glassformer.evaluate import regression
from glassformer.models.encoder_models import TextClassifier, TextRegressor
from glassformer.models.ensemble import members_of
from glassformer.tasks import register
from glassformer.tasks.base import CLASSES
from glassformer.tasks.classify import Classify, suggest, suggest_from_pretrained
from glassformer.tasks.probe import fit_ridge_probe
from glassformer.tasks.regress_report import RegressReport, scatter_points
from glassformer.text.decision import Decision, number_answer
from glassformer.text.ngrams import mean_words
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)

CLASSES_ALIKE = 3
"""Numbers are trained on with the settings of so many classes: more than two, whose texts are soon learned by heart."""

FIRST_OUTPUT = 0.1
"""What the random weights of the head are multiplied by, so that its first outputs are near the mean."""


def check_numbers(rows: Mapping[str, Rows], diagnostics: Diagnostics) -> None:
    """Note targets that are no numbers, by file and line, and training targets that are all the same."""
    train = rows.get("train")
    if train is not None and train.label_guessed and number_rank(train.answer)[0]:
        shown = repr(train.columns[-1]) if train.columns[-1] else f"with {train.answer[0][:40]!r}"
        wrong = next(filter(None, map(why_no_number, train.answer)), "")
        what = (
            f"no column of numbers was found, and column {shown} is the nearest ({wrong}); or name one: --label-column"
        )
        diagnostics.error(train.path, 0, "label", what)
        return
    n_before = diagnostics.n_issues
    for part in rows.values():
        for line, cell in zip(part.lines, part.answer, strict=True):
            if what := why_no_number(cell):
                diagnostics.error(part.path, line, "label", what)
    if train is not None and diagnostics.n_issues == n_before and len(set(map(float, train.answer))) == 1:
        what = f"all {len(train.answer):,} numbers are {train.answer[0]}, so there is nothing to learn"
        diagnostics.error(train.path, 0, "label", what)


@register
class Regress(Classify):
    """Validated on the mean absolute error.

    It is in the units of the data, and one text that is far off does not choose the weights, as in a mean of squares.
    """

    name = "regress"
    schema = DataSchema("regress", (TEXT, NUMBER), check=check_numbers)
    metric = "mae"
    report = RegressReport()
    ignores = Classify.ignores | CLASSES | {"train.label_smoothing"}
    explain_as = "regressor"

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Regress:
        task = cast(Regress, super().from_data(config, data, tokenizer))
        mean, sd = mean_and_sd(numbers_of(data.train))
        if sd == 0:
            what = f"{data.train.source}: all {len(data.train):,} training numbers are {data.train.answers[0]}"
            raise DataError(f"{what}, so there is nothing to learn", "give examples with different numbers")
        task.decision = Decision(mean=mean, sd=sd)
        return task

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        """Return the settings that suit as many texts of a few classes."""
        train = data.train
        n, n_words = len(train), mean_words(train.text)
        suggested = suggest(n, CLASSES_ALIKE, n_words, config.data.files.pair_column is not None)
        if config.text.tokenizer != "word":
            suggested["bigrams"] = 0
        if config.train.init_from and config.text.tokenizer == "imported":
            suggested |= suggest_from_pretrained(n, CLASSES_ALIKE)
        return suggested, f"{n:,} texts with a number each, {n_words:.0f} words each"

    @classmethod
    def classes_of(cls, train: Split) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None

    @property
    def eval_schema(self) -> DataSchema:
        return self.schema

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids and n-grams as a classifier's; labels, the numbers as they are."""
        super().encode_into(writer, Split(split.text, None, split.source), training)
        if split.answer is not None:
            writer.scalars("labels", numbers_of(split).tolist(), "<f8")

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch; labels (B,) are standardised numbers, 0 for texts without one."""
        batch = super().make_batch(replace(corpus, labels=None), index)
        if corpus.labels is None:
            return replace(batch, labels=torch.zeros(len(index)))
        numbers = self.decision.standardised(np.asarray(corpus.labels[index]))
        return replace(batch, labels=torch.from_numpy(numbers.astype(np.float32)))

    def build_single_model(self) -> TextClassifier:
        c, t = self.config, self.tokenizer
        sizes = t.vocab_size, c.text.max_len, len(t.ngrams) if t.ngrams else 0
        return TextRegressor(c.model, *sizes, t.bigrams).of_pairs(t.separator)

    def initialise_output(self, model: nn.Module, corpus: EncodedCorpus) -> None:
        """Begin near the mean of the training numbers, so that the first steps need not undo what chance drew."""
        for member in members_of(model):
            with torch.no_grad():
                cast(nn.Linear, member.head).weight.mul_(FIRST_OUTPUT)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Return the squared errors of the standardised numbers, summed over a batch."""
        return squared_errors(self.logits(model, batch)[:, 0], batch.labels).sum()

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        outputs, truth = self._outputs(model, corpus, group), np.array(corpus.labels)
        loss = np.square(outputs - self.decision.standardised(truth)).mean()
        error = regression.mean_absolute_error(truth, self.decision.numbers(outputs))
        return {"loss": float(loss), "mae": error}

    def decided(self, model: nn.Module, corpus: EncodedCorpus) -> Regress:
        return self

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        corpus, truth = self.encode(split, training=False), numbers_of(split)
        numbers = self.decision.numbers(self._outputs(model, corpus))
        scores = regression.score(truth, numbers)
        scores["truth_mean"], scores["truth_sd"] = mean_and_sd(truth)
        scores["scatter"] = scatter_points(truth, numbers)
        scores |= self._count_cut(corpus, len(split))
        if train is not None:
            logger.info(f"fitting the baselines to {counted(len(train), 'training texts')}")
            known = train.text, numbers_of(train), split.text, truth
            scores["baselines"] = regression.fit_baselines(*known, self.decision.scale, bool(self.tokenizer.separator))
        return scores | self._answers(split, numbers, truth.tolist())

    def _answer(self, text: str, probabilities: np.ndarray, /) -> dict[str, Any]:
        return number_answer(self.tokenizer.text_fields(text), float(probabilities))

    def _fit_head(self, vectors: np.ndarray, corpus: EncodedCorpus, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weight and bias of a ridge regression on the pooled vectors of the texts at `index`."""
        return fit_ridge_probe(vectors, self.decision.standardised(np.array(corpus.labels)[index]))

    def _probabilities(self, model: nn.Module, corpus: EncodedCorpus) -> np.ndarray:
        """Return the numbers (N,), which stand where a classifier has probabilities."""
        return self.decision.numbers(self._outputs(model, corpus))

    def _outputs(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> np.ndarray:
        """Return the output (N,) for each text, in standard deviations.

        Raises:
            DivergedError: one is not finite.
        """
        outputs = self._gathered(model, corpus, group, (1,))[:, 0].double().numpy()
        if not np.isfinite(outputs).all():
            raise DivergedError("the model's output is not finite, so it has no answer", "use an earlier checkpoint")
        return outputs


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of each output, in float32."""
    return (outputs.float() - targets.float()).square()


def numbers_of(split: Split) -> np.ndarray:
    """Return the target number of each example; raise DataError for one that is none."""
    answers: Sequence[str] = split.answers
    for row, answer in enumerate(answers, start=1):
        if what := why_no_number(answer):
            raise DataError(f"{split.source}: example {row:,}: {what}", "mend or leave out this example")
    return np.array([float(answer) for answer in answers])

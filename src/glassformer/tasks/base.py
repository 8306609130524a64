"""Define the interface of a task; everything in which tasks differ is behind it.

A training example passes `encode` → `epoch_batches` → `make_batch` → `loss_sum`; a text to predict passes `predict`.
To add a task, write one file beside this one and register it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig, FilesConfig
from glassformer.config.recipes import TASK_NAMES
from glassformer.data.batches import Batch, BatchPlan, length_buckets, shuffled_length_buckets
from glassformer.data.corpus import CorpusWriter, EncodedCorpus, kept_corpus
from glassformer.data.datasets.columns import Columns, ColumnSpecs, DataSchema, text_specs
from glassformer.data.splits import Split, TextData
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.models.ensemble import Ensemble, evaluation_mode
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.runs.records import JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import AnswerRule, Decision
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.console import announced
from glassformer.utils.process_settings import turns

EVALUATION_TOKENS = 8192
"""Tokens per batch when no gradient is needed."""
PARALLEL_FILES = frozenset(f"data.{f.name}" for f in fields(FilesConfig) if "src" in f.name or "tgt" in f.name)
"""Settings of sentence pairs, for the `ignores` of tasks without them."""
HASHED_NGRAMS = frozenset({"model.max_ngram", "model.ngram_dropout"})
"""Settings of the n-gram embeddings of running text, for the `ignores` of tasks that read examples."""
SEVERAL_LABELS = frozenset({"data.label_separator"})
"""Settings of texts that may have several labels, for the `ignores` of the other tasks."""
OF_LABELS = SEVERAL_LABELS | {"data.pair_column"}
"""Settings of texts with labels, for the `ignores` of tasks without them."""
WORD_VOCAB_SIZE = 20_000
"""Automatic vocabulary size of word tokenizers."""


class Task(ABC):
    """A task with one tokenizer: its data, its model, and how it is validated, evaluated and used.

    Args:
        config: the run's configuration.
        tokenizer: trained on the training split.
        label_names: the classes, in the order of the logits, if answers are classes.

    Attributes:
        name: its name in the configuration.
        schema: the columns of its tables, or running text.
        ignores: settings that do not apply: fields ("model.pooling") and whole sections ("decode").
        running_text: whether its data is one text, in which single examples and truncation have no meaning.
        metric: the score that selects the checkpoint.
        report: how its runs are reported.
        explain_as: the kind of model that `explain` traces, and by which an exported model is used.
        decision: how probabilities become answers, as chosen on validation.
        needs_tokens: roles of special tokens without which it cannot be trained, such as "mask".
        pools: whether its models pool the vectors of tokens into one, so that they can take the pooling of another.
        writes: roles of the special tokens that its models may generate; none where they generate nothing.
        imported_start: settings of the training for the weights of another library, which change less than random ones
            have to.
    """

    name: ClassVar[str]
    schema: ClassVar[DataSchema]
    ignores: ClassVar[frozenset[str]] = frozenset()
    running_text: ClassVar[bool] = False
    metric: str
    report: ClassVar[TaskReport] = TaskReport()
    needs_tokens: ClassVar[tuple[str, ...]] = ()
    pools: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ()
    imported_start: ClassVar[Mapping[str, Any]] = {}
    explain_as: ClassVar[str]
    decision: Decision = Decision()

    def __init__(self, config: Config, tokenizer: Tokenizer, label_names: list[str] | None = None) -> None:
        self.config, self.tokenizer, self.label_names = config, tokenizer, label_names

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Task:
        """Return the task with `tokenizer`, or with one trained on the training split."""
        texts = data.train.text + (data.train.answers if cls.schema.parallel else [])
        tokenizer = tokenizer or Tokenizer.train(texts, config.text, data.extra_tokens)
        return cls(config, tokenizer, cls.classes_of(data.train))

    def initialise_output(self, model: nn.Module, corpus: EncodedCorpus) -> None:
        """Set what a random model answers before its first step to what is frequent in training, where that helps."""
        return

    def decided(self, model: nn.Module, corpus: EncodedCorpus) -> Task:
        """Return the task with the `decision` that suits a trained model, chosen on the validation texts."""
        return self

    def start_head(self, model: nn.Module, corpus: EncodedCorpus) -> bool:
        """Fit a head that is new to what a pretrained model gives for the training texts; True where there is a way."""
        return False

    def with_config(self, config: Config) -> Task:
        task = copy.copy(self)
        task.config = config
        return task

    # --- data -----------------------------------------------------------------------------------------------

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[JsonObject, str]:
        """Return settings by field that suit the size of the training split, and a description of that size.

        A recipe names in `auto` those that it uses.
        """
        return {}, ""

    @classmethod
    def classes_of(cls, train: Split) -> list[str] | None:
        """Return the classes of the training split in the order of the logits; None if answers are not classes."""
        return None

    def text_columns(self, known: Columns | None, requested: tuple[str | None, str | None]) -> ColumnSpecs:
        """Return the columns of a table to answer; see `text_specs`."""
        return text_specs(self.schema.columns, known, requested, bool(self.tokenizer.separator))

    def token_columns(self, corpus: EncodedCorpus) -> list[Any]:
        """Return the columns of a corpus that hold tokens."""
        return [corpus.ids]

    @property
    def eval_schema(self) -> DataSchema:
        """Return the schema for files read after training, which also rejects labels the model has not seen."""
        return self.schema

    def encode(self, split: Split, *, training: bool) -> EncodedCorpus:
        """Return a split as ids in memory.

        With `training`, examples may be left out, such as pairs that are too long.
        """
        text = self.config.text

        def encoded() -> EncodedCorpus:
            writer = CorpusWriter(self.tokenizer, text)
            self.encode_into(writer, split, training)
            return writer.corpus()

        settings = self.name, text.max_len, text.truncate, training, self.tokenizer.sha256, self.label_names
        return kept_corpus(encoded, split, *map(str, settings))

    @abstractmethod
    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write the columns of a split, which may depend only on the settings that `encode` names."""

    def batch_costs(self, corpus: EncodedCorpus) -> tuple[np.ndarray, np.ndarray]:
        """Return (N,) the width that each example needs in a batch, and (N,) a key to sort equal widths by."""
        return np.maximum(corpus.lengths, 1), np.zeros(len(corpus), np.int64)

    def epoch_batches(self, corpus: EncodedCorpus, epoch: int) -> BatchPlan:
        """Return the batches of an epoch, a pure function of the corpus, the configuration and the epoch."""
        return shuffled_length_buckets(*self.batch_costs(corpus), self.config.train, epoch)

    def eval_batches(self, corpus: EncodedCorpus, max_tokens: int = EVALUATION_TOKENS) -> BatchPlan:
        """Return batches that contain every example once."""
        cost, tie = self.batch_costs(corpus)
        return length_buckets(cost, max_tokens, tie)

    @abstractmethod
    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Gather, shift and pad one entry of a batch plan. Labels are shifted here and nowhere else."""

    def batches(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Iterator[Batch]:
        """Yield the batches of `eval_batches` on the model's device; in a process group this rank's share."""
        device = next(model.parameters()).device
        batches = group.shard(self.eval_batches(corpus))
        for index in announced(batches, len(batches), "scored"):
            turns.give_way()
            yield self.make_batch(corpus, index).to(device)

    # --- model and loss -------------------------------------------------------------------------------------

    @property
    def suppress_tokens(self) -> list[int]:
        """Return the ids that the models never generate."""
        kept = {self.tokenizer.id_of(role) for role in self.writes}
        return [i for i in self.tokenizer.without_text if i not in kept] if self.writes else []

    def build_model(self) -> nn.Module:
        """Return a randomly initialised model, or an ensemble of `model.ensemble_size` of them."""
        members = [self.build_single_model() for _ in range(self.config.model.ensemble_size)]
        return members[0] if len(members) == 1 else Ensemble(members)

    @abstractmethod
    def build_single_model(self) -> nn.Module:
        """Return one randomly initialised model."""

    @abstractmethod
    def forward_flops(self, length: float) -> float:
        """Return the FLOPs per token of one model's forward pass on texts of `length` tokens; see `models/build.py`."""

    @abstractmethod
    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the model's logits, (B, C) or (B, T, V)."""

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Return the cross-entropy in nats, summed over a batch's labels; an ensemble's is its mean probability's."""
        return cross_entropy_sum(self.logits(model, batch), batch.labels, label_smoothing)

    def mean_loss(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> float:
        """Return the nats per label over a whole corpus, the same on all ranks."""
        nats, n_labels = 0.0, 0
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                nats += self.loss_sum(model, batch).item()
                n_labels += batch.n_labels
        nats, n_labels = group.all_reduce(nats, n_labels)
        return nats / max(1, n_labels)

    # --- scores and answers ---------------------------------------------------------------------------------

    @property
    def higher_is_better(self) -> bool:
        return self.report.metric(self.metric).higher_is_better

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        """Return {"loss": nats per label, `metric`: value, …}; cheap enough for every epoch.

        The processes of `group` divide the work and all get the scores; all must call it together. A task with another
        metric than its loss says how that is found.
        """
        loss = self.mean_loss(model, corpus, group)
        return {"loss": loss, self.metric: loss}

    @abstractmethod
    def evaluate(self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None) -> JsonObject:
        """Return all scores of a split, JSON-ready, with "examples" and "predictions".

        Baselines are fitted on `train`.
        """

    def answer_rule(self, options: Mapping[str, Any]) -> tuple[AnswerRule, dict[str, Any]]:
        """Return what some options of `predict` request of the answers, and the others; see `AnswerRule.of`."""
        return AnswerRule.of(self.explain_as, self.decision, options)

    @abstractmethod
    def predict(self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0) -> list[JsonObject]:
        """Return one JSON-ready object per text, in order; `first` is the row number of the first text (sampling)."""


TASKS: dict[str, type[Task]] = {}
"""The tasks by name."""
Kind = TypeVar("Kind", bound=type[Task])


def register(task: Kind) -> Kind:
    """Make a task known by its name, to recipes and run folders too; usable as a decorator."""
    TASKS[task.name] = task
    if task.name not in TASK_NAMES:
        TASK_NAMES.append(task.name)
    return task

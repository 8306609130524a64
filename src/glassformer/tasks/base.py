"""What a task answers, each question once; everything in which tasks differ is behind this interface.

The way of a line of text: rows of a data set → `encode` (ids, labels) → `epoch_batches` and `make_batch` →
`logits` → `loss_sum`; the way of an answer: texts → `predict`. The loop, the run folder, the report and the
commands know no task by name. To add one, write one file beside this one and register it.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig, FilesConfig, ModelConfig
from glassformer.data.batch_sampler import BatchPlan, length_buckets, shuffled_length_buckets
from glassformer.data.batching import Batch
from glassformer.data.corpus import EncodedCorpus, Encoder, encode_split
from glassformer.data.pretokenized.loader import pretokenized_corpus
from glassformer.data.schema import DataSchema
from glassformer.data.splits import Split, TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.models.ensemble import Ensemble, members_of
from glassformer.models.inference import evaluation_mode
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.tasks.reporting import TaskReport
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.cpu_threads import make_room

EVALUATION_TOKENS = 8192
"""Tokens in a batch when nothing needs a gradient."""
PARALLEL_FILES = frozenset(f"data.files.{f.name}" for f in fields(FilesConfig) if re.search("src|tgt", f.name))
"""Settings of pairs of sentences, for the `ignores` of tasks that read none."""
SELF_TRAINING = frozenset({"data.pseudo_file", "data.pseudo_min_probability"})
"""Settings of predicted labels, for the `ignores` of tasks that have none."""
WINDOWS = frozenset("model.longest_ngram model.ngram_rows model.ngram_dropout".split())
"""Settings of windows of a running text and of its model, for the `ignores` of tasks that read examples."""

WORDS = 20_000
"""Vocabulary that the rules of a task find where tokens are whole words: about as many as are seen."""


class Task(ABC):
    """One task on one tokenizer.

    Args:
        config: the run's configuration.
        tokenizer: trained on the training split.
        label_names: the classes, in the order of the logits, where answers are classes.

    Attributes:
        name: what the configuration calls it.
        schema: what it reads: the columns of a table, or running text.
        metric: the score that chooses the weights.
        report: how its runs are reported.
        ignores: settings it has no use for: fields ("model.pooling") and whole sections ("decode").
        fits_baselines: whether `evaluate` fits baselines, and so needs the training texts.
        running_text: whether its data is one text, in which single examples and truncation have no meaning.
        explain_as: the kind of model that `explain` traces; None where it cannot.
        ranks: who shares the work of `validate`; a process alone unless `among` says otherwise.
    """

    name: ClassVar[str]
    schema: ClassVar[DataSchema]
    metric: str
    report: ClassVar[TaskReport] = TaskReport()
    ignores: ClassVar[frozenset[str]] = frozenset()
    fits_baselines: ClassVar[bool] = False
    running_text: ClassVar[bool] = False
    explain_as: ClassVar[Literal["decider", "translator", "writer"] | None] = None
    ranks: ProcessGroup = SINGLE_PROCESS

    def __init__(self, config: Config, tokenizer: Tokenizer, label_names: list[str] | None = None) -> None:
        self.config, self.tokenizer, self.label_names = config, tokenizer, label_names

    @property
    def higher_is_better(self) -> bool:
        """Which way the metric is better."""
        return self.report.metric(self.metric).higher_is_better

    @property
    def suppress_tokens(self) -> list[int]:
        """Ids that its models never write."""
        return []

    def with_config(self, config: Config) -> Task:
        """Return the same task, as it was fitted and set up, with another configuration."""
        task = copy.copy(self)
        task.config = config
        return task

    def among(self, ranks: ProcessGroup) -> Task:
        """The task whose `validate` is divided among processes and gathered; all must call it together."""
        task = copy.copy(self)
        task.ranks = ranks
        return task

    # --- from the data to settings --------------------------------------------------------------------------

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        """Settings that suit this data, by field, and the reason in words; for a recipe to name in `auto`.

        They look at the training split alone, and at nothing of it but sizes; and at what `config` has chosen already.
        """
        return {}, ""

    # --- from texts to ids ----------------------------------------------------------------------------------

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Task:
        """The task with a tokenizer trained on the training split alone, or with one trained before."""
        tokenizer = tokenizer or data.tokenizer
        tokenizer = tokenizer or Tokenizer.train(cls.tokenizer_texts(data.train), config.text, data.extra_tokens)
        return cls(config, tokenizer, cls.classes_of(data.train))

    @classmethod
    def tokenizer_texts(cls, train: Split) -> list[str]:
        """The texts the tokenizer is trained on."""
        return train.text

    @classmethod
    def classes_of(cls, train: Split) -> list[str] | None:
        """The classes that training knows, in the order of the logits; None where answers are no classes."""
        return None

    @property
    def eval_schema(self) -> DataSchema:
        """`schema`, its check knowing what this trained task knows; for test files that come later."""
        return self.schema

    def encode(self, split: Split, *, training: bool, cache: Path | None = None) -> EncodedCorpus:
        """A split as ids, in memory or mapped from a cache folder; `training` may leave examples out.

        What was encoded ahead is only mapped.
        """
        if split.shards is not None:
            return pretokenized_corpus(split.shards, self.tokenizer)
        text = self.config.text

        def settings() -> list[object]:
            known = self.tokenizer.sha256, self.label_names
            return [self.name, text.max_len, text.truncate, training, *known]

        encoder = partial(Encoder, tokenizer=self.tokenizer, text=text)
        return encode_split(split, encoder, partial(self.encode_into, training=training), settings, cache)

    @abstractmethod
    def encode_into(self, encoder: Encoder, split: Split, training: bool) -> None:
        """Put the columns of a split into an encoder; a function of its arguments and of `encode`'s settings."""

    # --- from ids to batches --------------------------------------------------------------------------------

    def batch_costs(self, corpus: EncodedCorpus) -> tuple[np.ndarray, np.ndarray]:
        """(N,) what an example costs a batch (the width it forces), and (N,) what to sort equal costs by."""
        return np.maximum(corpus.lengths, 1), np.zeros(len(corpus), np.int64)

    def epoch_batches(self, corpus: EncodedCorpus, epoch: int) -> BatchPlan:
        """The batches of an epoch: a pure function of the corpus, the configuration and the epoch."""
        return shuffled_length_buckets(*self.batch_costs(corpus), self.config.train, epoch)

    def eval_batches(self, corpus: EncodedCorpus, max_tokens: int = EVALUATION_TOKENS) -> BatchPlan:
        """Batches that visit every example once."""
        cost, tie = self.batch_costs(corpus)
        return length_buckets(cost, max_tokens, tie)

    @abstractmethod
    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Gather, shift and pad one entry of a plan. Labels are shifted here and nowhere else."""

    # --- from batches to losses and scores ------------------------------------------------------------------

    def build_model(self) -> nn.Module:
        """A new model for this tokenizer, randomly initialised: one, or an ensemble of as many as are asked for."""
        members = [self.build_single_model() for _ in range(self.config.model.members)]
        return members[0] if len(members) == 1 else Ensemble(members)

    @abstractmethod
    def build_single_model(self) -> nn.Module:
        """One new model."""

    @classmethod
    @abstractmethod
    def n_layers(cls, model: ModelConfig) -> int:
        """Transformer layers of a model of these sizes, encoder and decoder together."""

    @abstractmethod
    def forward_flops(self, length: float) -> float:
        """FLOPs of a forward pass of one model a real token, for texts of `length` tokens; see `models/cost.py`."""

    @abstractmethod
    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model says of a batch: (B, C), or (B, T, V)."""

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Cross-entropy summed over the labels of a batch, in nats.

        Of an ensemble in training the mean over its members, each of which learns by itself; else that of their mean.
        """
        asked = members_of(model) if model.training else [model]
        return torch.stack([self.single_loss_sum(each, batch, label_smoothing) for each in asked]).mean()

    def single_loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """`loss_sum` of a model as it stands."""
        return cross_entropy_sum(self.logits(model, batch), batch.labels, label_smoothing)

    @abstractmethod
    def validate(self, model: nn.Module, corpus: EncodedCorpus, split: Split) -> dict[str, float]:
        """{"loss": nats per label, `metric`: value, …}, quick enough for every epoch; `corpus` is `split`, encoded."""

    @abstractmethod
    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        """All scores of a split, JSON-ready, with "examples" and "predictions"; baselines are fitted on `train`."""

    @abstractmethod
    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
        """One JSON-ready object a text, in order; `first` is the number of the first text in the request.

        This is inference's own door: no labels, no cache, no corpus.
        """

    def mean_loss(self, model: nn.Module, corpus: EncodedCorpus) -> float:
        """Nats per label over a whole corpus."""
        nats, n_labels = self.total_loss(model, corpus)
        return nats / max(1, n_labels)

    def total_loss(self, model: nn.Module, corpus: EncodedCorpus) -> tuple[float, int]:
        """Nats over a whole corpus, and the labels they are summed over; all ranks get the same."""
        nats, n_labels = 0.0, 0
        with evaluation_mode(model):
            for batch in self.batches(model, corpus):
                nats += self.loss_sum(model, batch).item()
                n_labels += batch.n_labels
        nats, n = self.ranks.all_reduce(nats, n_labels)
        return nats, int(n)

    def batches(self, model: nn.Module, corpus: EncodedCorpus) -> Iterator[Batch]:
        """The batches of `eval_batches`, where the model is; of several processes this one's share."""
        device = next(model.parameters()).device
        for index in self.ranks.shard(self.eval_batches(corpus)):
            make_room()
            yield self.make_batch(corpus, index).to(device)

"""What the three tasks have in common, and the six things in which they differ.

A `Task` knows its tokenizer, its model, its loss, its metric and how to predict; the training loop, the
run folder and the commands know none of these. To add a task, write one file beside this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig, TaskName
from glassformer.data.batching import Batch, eval_batches, make_batch
from glassformer.data.corpus import EncodedCorpus, encode_split
from glassformer.data.splits import Split, TextData
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.text.tokenizer import Tokenizer

EVALUATION_TOKENS = 8192
"""Tokens in a batch when nothing needs a gradient."""


class Task(ABC):
    """One task on one tokenizer.

    Args:
        config: the run's configuration.
        tokenizer: trained on the training split.
        label_names: the classes, in the order of the logits (classification).
    """

    name: ClassVar[TaskName]
    metric: str
    higher_is_better: ClassVar[bool]

    def __init__(
        self, config: Config, tokenizer: Tokenizer, label_names: Sequence[str] | None = None
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.label_names = list(label_names) if label_names is not None else None

    @classmethod
    def fit(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Task:
        """The task with a tokenizer trained on the training split alone, or with one trained before."""
        if tokenizer is None:
            texts = data.train.text + (data.train.target or [])
            tokenizer = Tokenizer.train(texts, config.text, data.extra_tokens)
        return cls(config, tokenizer, data.label_names)

    def encode(self, split: Split, *, training: bool, cache: Path | None = None) -> EncodedCorpus:
        """A split as ids on disk; see `encode_split`."""
        return encode_split(split, self.tokenizer, self.name, self.config.text, cache, drop_long=training)

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A new model for this tokenizer, randomly initialised."""

    @abstractmethod
    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model says of a batch: (B, C), or (B, T, V)."""

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Cross-entropy summed over the labels of a batch, in nats."""
        return cross_entropy_sum(self.logits(model, batch), batch.labels, label_smoothing)

    @abstractmethod
    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, device: torch.device
    ) -> dict[str, float]:
        """{"loss": nats per label, `metric`: value, …}, quick enough for every epoch."""

    @abstractmethod
    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        device: torch.device,
        decode: DecodeConfig,
        train: Split | None = None,
    ) -> dict[str, Any]:
        """All scores of a split, JSON-ready, with "examples" and "predictions" for the report.

        `train` is what baselines are fitted on, where the task has baselines.
        """

    @abstractmethod
    def predict(
        self,
        model: nn.Module,
        texts: Sequence[str],
        device: torch.device,
        decode: DecodeConfig,
        first: int = 0,
    ) -> list[dict[str, Any]]:
        """One JSON-ready object a text, in order; `first` is the number of the first text in the request."""

    def mean_loss(self, model: nn.Module, corpus: EncodedCorpus, device: torch.device) -> float:
        """Nats per label over a whole corpus."""
        total, n_labels = 0.0, 0
        for index in eval_batches(corpus, self.name, EVALUATION_TOKENS, self.config.text):
            batch = make_batch(corpus, self.name, index, self.tokenizer).to(device)
            total += self.loss_sum(model, batch).item()
            n_labels += batch.n_labels
        return total / max(1, n_labels)

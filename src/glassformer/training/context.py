"""What a run is made of, in one value: what the loop, validation and the report would otherwise be handed apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from glassformer.config import Config
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import TextData
from glassformer.distributed.process_group import ALONE, Ranks
from glassformer.tasks import Task
from glassformer.training.finetune import PretrainedModel
from glassformer.utils.device import Precision


@dataclass(frozen=True)
class RunContext:
    """Everything training needs, made from a configuration; nothing in it changes while a run trains."""

    data: TextData
    task: Task
    train: EncodedCorpus
    valid: EncodedCorpus
    device: torch.device
    precision: Precision
    base: PretrainedModel | None = None
    """What a new run begins from, where that is not random weights."""
    ranks: Ranks = ALONE
    """Who trains it together."""

    @property
    def config(self) -> Config:
        """The configuration, which is the task's: there is no other."""
        return self.task.config

    def with_config(self, config: Config) -> RunContext:
        """Return the same run with another configuration of what its data and tokenizer leave open."""
        return replace(self, task=self.task.with_config(config))

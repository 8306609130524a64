"""What a training run needs, as one value."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from glassformer.config import Config
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.tasks import Task
from glassformer.training.finetune import PretrainedModel
from glassformer.utils.cpu_threads import Threads
from glassformer.utils.device import Precision


@dataclass(frozen=True)
class RunContext:
    """Data, task, device and processes of a run; nothing here changes while it trains."""

    data: TextData
    task: Task
    train: EncodedCorpus
    valid: EncodedCorpus
    device: torch.device
    precision: Precision
    pretrained: PretrainedModel | None = None
    """The run whose weights a new run starts from (`init_from`)."""
    group: ProcessGroup = SINGLE_PROCESS
    """The processes that train together."""
    threads: Threads | None = None
    """What adapts the number of threads to the load of the machine; None where that number is fixed."""

    @property
    def config(self) -> Config:
        return self.task.config

    def with_config(self, config: Config) -> RunContext:
        """Return the same context with another configuration, of settings that do not affect data and tokenizer."""
        return replace(self, task=self.task.with_config(config))

"""What a training run needs, and what changes while it trains: model, optimizer, best weights, random generators.

The state is saved as named tensors and a JSON object (`runs/model_folder.py`), from which a run resumes exactly.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from glassformer.config import Config, TrainConfig
from glassformer.data.batches import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import TextData
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.models.ensemble import members_of
from glassformer.nn.layers import Stack
from glassformer.runs.model_folder import Weights, load_weights
from glassformer.tasks import Task
from glassformer.training.finetune import PretrainedModel
from glassformer.training.optimizer import ExponentialMovingAverage as MovingAverage
from glassformer.training.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
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
    pretrained: PretrainedModel | None = None
    """The run whose weights a new run starts from (`init_from`)."""
    group: ProcessGroup = SINGLE_PROCESS
    """The processes that train together."""
    threads: Threads | None = None
    """What adapts the number of threads to the load of the machine; None where that number is fixed."""
    choice: str = ""
    """What was chosen to compute with by a trial on this machine, and why, in words (`computing.py`)."""

    @property
    def config(self) -> Config:
        return self.task.config

    @property
    def precision(self) -> Precision:
        return "bf16" if self.config.train.precision == "bf16" else "fp32"

    def with_config(self, config: Config) -> RunContext:
        """Return the same context with another configuration, of settings that do not affect data and tokenizer."""
        return replace(self, task=self.task.with_config(config))


class LossModule(nn.Module):
    """A model with its task's loss as one module, so that DistributedDataParallel sees one forward pass per batch.

    Args:
        model: the only child with parameters.
        task: computes the loss of a batch from the model.
    """

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """Return the cross-entropy with label smoothing; the members of an ensemble learn each by itself."""
        smoothing = self.task.config.train.label_smoothing
        sums = [self.task.loss_sum(member, batch, smoothing) for member in members_of(self.model)]
        return torch.stack(sums).mean()


Number = Annotated[int, Meta(ge=0, le=2**53)]
Amount = Annotated[float, Meta(ge=0, le=2**53)]


@dataclass
class Progress:
    """The position of a run, written as JSON; steps and epochs are those of the run, over all resumes.

    Attributes:
        position: batches of this epoch already used, so that no batch is repeated after a resume.
        seconds: wall-clock time of training and validation, over all resumes.
        next_validation: the epochs after which the next one is due.
        finished: why the run ended, "budget", "patience" or, by `--finish` or the page, "stopped"; empty before.
        steps_counted, steps_clipped: steps since the last that logged its updates, and those whose gradient was
            clipped.
    """

    step: Number = 0
    epoch: Number = 0
    position: Number = 0
    seconds: Amount = 0.0
    next_validation: Amount = 0.0
    validated_step: Number = 0
    best_metric: float | None = None
    best_loss: float | None = None
    best_step: Number = 0
    validations_since_best: Number = 0
    finished: Literal["", "budget", "patience", "stopped"] = ""
    steps_counted: Number = 0
    steps_clipped: Number = 0


class TrainState:
    """Everything that changes while a run trains.

    Args:
        model: the task's model, on its device; its layers may be compiled.
        task: names the training settings and computes the loss.
        group: the processes that train together.
        initial: metric and loss of the weights before the first step, where these count as validated (with a probe), so
            that steps that make them worse are not kept.

    Attributes:
        train_module: the model with its loss (`LossModule`), in DDP where there are several processes.
        eval_model: a copy for validation and for the end of a run, which load the weights to use into it.
        ema: moving average of the weights, if any.
        best: the weights that validated best so far.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        group: ProcessGroup = SINGLE_PROCESS,
        initial: tuple[float, float] | None = None,
    ) -> None:
        config, self.model, self.initial = task.config.train, model, initial
        self.eval_model = copy.deepcopy(model)  # whose layers are not compiled
        if config.compile:
            for stack in (module for module in model.modules() if isinstance(module, Stack)):
                for layer in stack.layers:
                    layer.compile()
        self.train_module = group.wrap_ddp(LossModule(model, task))
        self.restart(config)

    def restart(self, config: TrainConfig) -> None:
        """Begin with the weights that the model has: a new optimizer and moving average, and no step taken."""
        self.optimizer = make_optimizer(self.model, config)
        self.best: Weights | None = None
        self.ema = MovingAverage(self.model, config.ema_decay) if config.ema_decay > 0 else None
        metric, loss = self.initial or (None, None)
        self.progress = Progress(next_validation=config.validate_every, best_metric=metric, best_loss=loss)
        if self.initial is not None:
            self.best = copy_weights(self.weights())

    @contextmanager
    def trial(self, config: TrainConfig) -> Iterator[None]:
        """Restore weights and random generators after the block, whose steps count for nothing."""
        weights = copy_weights(dict(self.model.named_parameters()))
        states = [(generator, generator.get_rng_state()) for generator in _generators().values()]
        yield
        load_weights(self.model, weights)
        self.restart(config)
        for generator, state in states:
            generator.set_rng_state(state)

    def weights(self) -> Weights:
        """Return the weights to validate and keep: the moving average where there is one."""
        if self.ema is not None:
            return self.ema.tensors
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the state under one flat set of names."""
        groups: dict[str, Weights] = {
            "model": {name: p.detach() for name, p in self.model.named_parameters()},
            "optimizer": optimizer_tensors(self.model, self.optimizer),
            "ema": self.ema.tensors if self.ema else {},
            "best": self.best or {},
            "rng": {name: generator.get_rng_state() for name, generator in _generators().items()},
        }
        return {f"{group}:{name}": t for group, named in groups.items() for name, t in named.items()}

    def load(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Restore a saved state.

        Raises:
            CheckpointError: names or shapes are not those of this model and its optimizer.
        """
        self.progress = progress
        groups: dict[str, Weights] = {group: {} for group in ("model", "optimizer", "ema", "best", "rng")}
        for full_name, tensor in tensors.items():
            group, _, name = full_name.partition(":")
            groups[group][name] = tensor
        # Each group passes through the model, which checks it and has it on its device.
        if self.ema is not None:
            load_weights(self.model, groups["ema"])
            self.ema.tensors = copy_weights(dict(self.model.named_parameters()))
        if progress.best_metric is not None:
            load_weights(self.model, groups["best"])
            self.best = copy_weights(dict(self.model.named_parameters()))
        load_weights(self.model, groups["model"])
        load_optimizer_tensors(self.model, self.optimizer, groups["optimizer"])
        for name, generator in _generators().items():  # those that this machine lacks, or had not, are left alone
            if name in groups["rng"]:
                generator.set_rng_state(groups["rng"][name].cpu())


def copy_weights(weights: Weights) -> Weights:
    """Return a copy that later steps do not change."""
    return {name: t.detach().clone() for name, t in weights.items()}


def _generators() -> dict[str, Any]:
    """Return the modules with a random number generator, by device."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    modules = {"cpu": torch, "cuda": torch.cuda, "mps": torch.mps}
    return {name: modules[name] for name, is_available in available.items() if is_available}

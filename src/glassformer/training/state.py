"""What a training run needs, and what changes while it trains: model, optimizer, best weights, random generators.

The state is saved as named tensors and a JSON object (`runs/checkpoints.py`), from which a run resumes exactly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from glassformer.config import Config, TrainConfig
from glassformer.data.batches import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import CheckpointError
from glassformer.models.ensemble import members_of
from glassformer.nn.layers import Stack
from glassformer.runs.model_folder import Weights, load_weights
from glassformer.tasks import Task
from glassformer.training.finetune import PretrainedModel
from glassformer.training.optimizer import ExponentialMovingAverage as MovingAverage
from glassformer.training.optimizer import check_like, load_optimizer_tensors, make_optimizer, optimizer_tensors
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


def prepare_layers(model: nn.Module, config: TrainConfig) -> None:
    """Recompute the activations of each layer in the backward pass, or compile each layer, as configured.

    The first changes no result, the second only its rounding. The forward method of a layer is replaced and the layer
    is not wrapped, so that the names of the weights stay.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for layer in (layer for stack in stacks for layer in stack.layers):
        if config.activation_checkpointing:
            layer.forward = checkpointed(layer.forward)
        if config.compile:
            layer.compile()


def checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward pass that keeps its input only and is recomputed in the backward pass (Chen et al. 2016).

    The random state is restored for it, so that dropout zeroes the same elements.
    """
    return wraps(forward)(partial(checkpoint, forward, use_reentrant=False))


Number = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=2**53)]


@dataclass
class Progress:
    """The position of a run, written as JSON; steps and epochs are those of the run, over all resumes.

    Attributes:
        position: batches of this epoch already used, so that no batch is repeated after a resume.
        seconds: wall-clock time of training and validation, over all resumes.
        finished: why the run ended, "budget" or "patience"; empty before.
        steps_counted, steps_clipped, seconds_counted, seconds_batching: steps since the last that logged its updates,
            those whose gradient was clipped, their time, and its part spent making batches.
    """

    step: Number = 0
    epoch: Number = 0
    position: Number = 0
    seconds: Seconds = 0.0
    seconds_validating: Seconds = 0.0
    next_validation: Seconds = 0.0
    n_validations: Number = 0
    validated_step: Number = 0
    best_metric: float | None = None
    best_loss: float | None = None
    best_step: Number = 0
    validations_since_best: Number = 0
    finished: Literal["", "budget", "patience"] = ""
    steps_counted: Number = 0
    steps_clipped: Number = 0
    seconds_counted: Seconds = 0.0
    seconds_batching: Seconds = 0.0

    def advance(self, n_batches: int, seconds: float, clipped: bool, seconds_batching: float) -> None:
        self.step += 1
        self.position += n_batches
        self.seconds += seconds
        self.steps_counted += 1
        self.steps_clipped += clipped
        self.seconds_counted += seconds
        self.seconds_batching += seconds_batching

    def end_step(self, used: float, batches_per_epoch: int) -> None:
        """Note the end of the budget, of which a share is used, and the beginning of the next epoch."""
        if used >= 1.0:
            self.finished = "budget"
        if self.position >= batches_per_epoch:
            self.epoch, self.position = self.epoch + 1, 0

    def take_counts(self) -> tuple[float, float]:
        """Return the shares of steps that were clipped and of time spent making batches; begin to count from zero."""
        shares = self.steps_clipped / self.steps_counted, self.seconds_batching / self.seconds_counted
        self.steps_counted = self.steps_clipped = 0
        self.seconds_counted = self.seconds_batching = 0.0
        return shares


@dataclass
class TrainState:
    """Everything that changes while a run trains.

    Attributes:
        model: the model, whose layers may be set to activation checkpointing.
        train_module: the model with its loss (`LossModule`), in DDP where there are several processes.
        eval_model: a copy for validation and for the end of a run, which load the weights to use into it.
        ema: moving average of the weights, if any.
        best: the weights that validated best so far.
        initial: metric and loss of the weights before the first step, where these count as validated: with a probe.
    """

    model: nn.Module
    train_module: nn.Module
    eval_model: nn.Module
    optimizer: torch.optim.Optimizer = field(init=False)
    ema: MovingAverage | None = field(init=False)
    progress: Progress = field(init=False)
    best: Weights | None = field(init=False)
    initial: tuple[float, float] | None = field(init=False, default=None)

    @staticmethod
    def start(model: nn.Module, task: Task, group: ProcessGroup = SINGLE_PROCESS) -> TrainState:
        """Return the state before the first step.

        Args:
            model: the task's model, on its device.
            task: names the training settings and computes the loss.
            group: the processes that train together.
        """
        config = task.config.train
        # The copy is made before `prepare_layers`, so that its layers compute plainly.
        eval_model = copy.deepcopy(model)
        prepare_layers(model, config)
        train_module = group.wrap_ddp(LossModule(model, task))
        state = TrainState(model, train_module, eval_model)
        state.restart(config)
        return state

    def restart(self, config: TrainConfig) -> None:
        """Begin with the weights that the model has: a new optimizer and moving average, and no step taken."""
        self.optimizer, self.best = make_optimizer(self.model, config), None
        self.ema = MovingAverage(self.model, config.ema_decay) if config.ema_decay > 0 else None
        self.progress = Progress(next_validation=config.validate_every)
        if self.initial is not None:
            self.keep_initial(*self.initial)

    def keep_initial(self, metric: float, loss: float) -> None:
        """Count the weights before the first step as validated, so that steps that make them worse are not kept."""
        self.initial = self.progress.best_metric, self.progress.best_loss = metric, loss
        self.best = copy_weights(self.weights())

    @contextmanager
    def trial(self, config: TrainConfig) -> Iterator[None]:
        """Restore weights and random generators after the block, whose steps count for nothing."""
        weights = copy_weights(dict(self.model.named_parameters()))
        generators = {name: generator.get_rng_state() for name, generator in _generators().items()}
        yield
        load_weights(self.model, weights)
        self.restart(config)
        _restore_generators(generators)

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

    def load(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Restore a saved state.

        Raises:
            CheckpointError: names, shapes or types are not those of this model and its optimizer, or one is missing.
        """
        self.progress = Progress(**progress)
        groups: dict[str, Weights] = {}
        for full_name, tensor in tensors.items():
            group, _, name = full_name.partition(":")
            groups.setdefault(group, {})[name] = tensor
        with_best = self.progress.best_metric is not None
        expected = {"model", "rng"} | ({"ema"} if self.ema else set()) | ({"best"} if with_best else set())
        if odd := expected ^ (groups.keys() - {"optimizer"}):
            name = min(odd)
            state = "lacks" if name in expected else "should not hold"
            raise CheckpointError(f"the checkpoint {state} the tensors of {name!r}")
        weights = {group: _like(self.model, groups[group], group) for group in sorted(expected - {"rng"})}
        load_weights(self.model, weights["model"])
        if self.ema is not None:
            self.ema.tensors = weights["ema"]
        self.best = weights.get("best")
        load_optimizer_tensors(self.model, self.optimizer, groups.get("optimizer", {}), self.progress.step)
        _restore_generators(groups["rng"])


def copy_weights(weights: Weights) -> Weights:
    """Return a copy that later steps do not change."""
    return {name: t.detach().clone() for name, t in weights.items()}


def is_better(metric: float, best: float | None, higher_is_better: bool) -> bool:
    """Return whether a metric is better than the best so far; NaN never is."""
    if best is None:
        return not math.isnan(metric)
    return metric > best if higher_is_better else metric < best


def _like(model: nn.Module, weights: Weights, group: str) -> Weights:
    """Return saved weights on the model's device; raise CheckpointError unless names, shapes and types are its own."""
    parameters = dict(model.named_parameters())
    if odd := sorted(parameters.keys() ^ weights.keys()):
        message = f"{odd[0]} (of {len(odd)} names) is in only one"
        raise CheckpointError(f"the checkpoint's tensors of {group!r} are not this model's: {message}")
    for name, parameter in parameters.items():
        check_like(f"{group}:{name}", weights[name], parameter)
    return {name: t.to(parameters[name].device) for name, t in weights.items()}


def _restore_generators(states: Weights) -> None:
    """Set the random generators; those of devices that this machine lacks, or had not, are left alone."""
    if "cpu" not in states:
        raise CheckpointError("the checkpoint lacks the state of the CPU's random generator")
    for name, generator in _generators().items():
        if name in states:
            try:
                generator.set_rng_state(states[name].cpu())
            except (RuntimeError, TypeError) as error:
                message = f"rng:{name} is no state of a random generator: {str(error)[:200]}"
                raise CheckpointError(f"the checkpoint's {message}") from error


def _generators() -> dict[str, Any]:
    """Return the modules with a random number generator, by device."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    modules = {"cpu": torch, "cuda": torch.cuda, "mps": torch.mps}
    return {name: modules[name] for name, is_available in available.items() if is_available}

"""Everything a run needs to go on as if it had never stopped, as named tensors and a JSON object.

What is saved and where is `runs/checkpoints.py`; this module only says what the state is.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.distributed.process_group import ALONE, Ranks
from glassformer.errors import CheckpointError
from glassformer.runs.tensor_file import Weights, load_weights
from glassformer.training.activation_checkpointing import prepare_layers
from glassformer.training.optimizer import ExponentialMovingAverage as MovingAverage
from glassformer.training.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors


@dataclass
class Progress:
    """Where a run is: plain numbers, written as JSON.

    `position` counts the batches of this epoch already used, so data order is never replayed;
    `seconds` is training wall-clock over all sittings, validation included.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    seconds: float = 0.0
    seconds_validating: float = 0.0
    next_validation: float = 0.0
    n_validations: int = 0
    validated_step: int = 0
    best_metric: float | None = None
    best_loss: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    finished: str = ""


@dataclass
class TrainState:
    """The model, the module that computes its losses (`Ranks.wrap`), what updates it, and how far it is.

    `eval_model` is a copy of the model whose layers are computed plainly: validation and the end of a run load into it
    the weights they use.
    """

    model: nn.Module
    parallel: nn.Module
    eval_model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: MovingAverage | None
    progress: Progress = field(default_factory=Progress)
    best: Weights | None = None

    @staticmethod
    def start(model: nn.Module, config: TrainConfig, ranks: Ranks = ALONE) -> TrainState:
        """The state before the first update."""
        eval_model = copy.deepcopy(model)  # before `prepare_layers`
        prepare_layers(model, config)
        parallel = ranks.wrap(model)
        ema = MovingAverage(model, config.ema_decay) if config.ema_decay > 0 else None
        progress = Progress(next_validation=config.validate_every)
        return TrainState(model, parallel, eval_model, make_optimizer(model, config), ema, progress)

    def weights(self) -> Weights:
        """The weights that are validated and kept: the moving average where there is one."""
        if self.ema is not None:
            return self.ema.tensors
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state under one flat set of names."""
        groups: dict[str, Weights] = {
            "model": {name: p.detach() for name, p in self.model.named_parameters()},
            "optimizer": optimizer_tensors(self.model, self.optimizer),
            "ema": self.ema.tensors if self.ema else {},
            "best": self.best or {},
            "rng": {name: generator.get_rng_state() for name, generator in _generators().items()},
        }
        return {f"{group}:{name}": t for group, named in groups.items() for name, t in named.items()}

    def load(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Become the state that was saved.

        Raises:
            CheckpointError: names or shapes are not those of this model.
        """
        groups: dict[str, Weights] = {}
        for full_name, tensor in tensors.items():
            group, _, name = full_name.partition(":")
            groups.setdefault(group, {})[name] = tensor
        load_weights(self.model, groups.get("model", {}))
        load_optimizer_tensors(self.model, self.optimizer, groups.get("optimizer", {}))
        if self.ema is not None:
            self.ema.tensors = _on_device_of(self.model, groups.get("ema", {}))
        self.best = _on_device_of(self.model, groups["best"]) if "best" in groups else None
        try:
            self.progress = Progress(**progress)
        except TypeError as error:
            raise CheckpointError(f"the checkpoint counts other things than this version: {error}") from error
        for name, generator in _generators().items():
            if name in groups.get("rng", {}):
                generator.set_rng_state(groups["rng"][name].cpu())


def copy_weights(weights: Weights) -> Weights:
    """A copy that later updates do not touch."""
    return {name: t.detach().clone() for name, t in weights.items()}


def is_better(metric: float, best: float | None, higher_is_better: bool) -> bool:
    """Whether a metric beats the best so far; never when it is not a number."""
    if best is None:
        return not math.isnan(metric)
    return metric > best if higher_is_better else metric < best


def _on_device_of(model: nn.Module, weights: Weights) -> Weights:
    device = next(model.parameters()).device
    return {name: t.to(device) for name, t in weights.items()}


def _generators() -> dict[str, Any]:
    """The random number generators there are, by device."""
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    modules = {"cpu": torch, "cuda": torch.cuda, "mps": torch.mps}
    return {name: modules[name] for name, available in here.items() if available}

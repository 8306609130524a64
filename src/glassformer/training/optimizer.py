"""Optimizers, the parameters with weight decay, and the moving average of the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.training.muon import muon_with_adamw


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019), Adam (Vaswani et al. 2017, section 5.3), SGD, or Muon with AdamW.

    Weight decay applies to the matrices of linear layers only, not to embeddings, norms and biases.
    """
    match config.optimizer:
        case "adamw":
            c, groups = config.adamw, decay_groups(model, config.adamw.weight_decay)
            return torch.optim.AdamW(groups, config.lr, (c.beta1, c.beta2), c.eps, fused=True)
        case "adam":
            c, groups = config.adam, decay_groups(model, 0.0)
            return torch.optim.Adam(groups, config.lr, (c.beta1, c.beta2), c.eps, fused=True)
        case "sgd":
            c = config.sgd
            return torch.optim.SGD(decay_groups(model, c.weight_decay), config.lr, c.momentum)
        case "muon":
            return muon_with_adamw(model, config)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups for torch: the matrices of linear layers, with weight decay, and the rest without."""
    decayed = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    matrices, others = [p for n, p in named if n in decayed], [p for n, p in named if n not in decayed]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter name, such as "decoder.layers.0….weight/exp_avg"."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, key = full_name.rsplit("/", 1)
        # On a GPU the fused kernel expects Adam's step count, a float scalar, on the device of the weights.
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device).clone()


class ExponentialMovingAverage:
    """average ← decay · average + (1 - decay) · weights after each step.

    The decay of step n is at most (1 + n) / (10 + n), as in TensorFlow, so that the random initialisation does not
    dominate the average of a short run.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, n_steps: int) -> None:
        """Include the weights of the model after `n_steps` earlier steps."""
        decay = min(self.decay, (1 + n_steps) / (10 + n_steps))
        named = dict(model.named_parameters())
        # By name: a loaded state may be in another order.
        weights = [named[name] for name in self.tensors]
        torch._foreach_lerp_(list(self.tensors.values()), weights, 1 - decay)  # pyright: ignore

"""The optimizer, which parameters it decays, and the moving average of the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.training.muon import muon_beside_adamw


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019) or Adam (the paper's, 5.3), each fused into one kernel, SGD, or Muon
    for the matrices of the layers beside AdamW for the rest (`muon.py`).

    Weight decay is for the matrices of linear layers; embeddings, norms and biases are left alone.
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
            return muon_beside_adamw(model, config)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters in groups for torch: the matrices of linear layers, which decay, and the rest."""
    decayed = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    matrices, others = [p for n, p in named if n in decayed], [p for n, p in named if n not in decayed]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name, "decoder.layers.0….weight/exp_avg" → tensor."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, key = full_name.rsplit("/", 1)
        # Adam's step count stays a float scalar; on a GPU the fused kernel wants it beside the weights.
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device).clone()


class ExponentialMovingAverage:
    """average ← decay · average + (1 - decay) · weights after each update, with a warm start.

    The decay begins at 1/10 and rises as (1 + n) / (10 + n) (as TensorFlow's does), so that a short
    run is not dominated by its random initialisation.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, n_updates: int) -> None:
        decay = min(self.decay, (1 + n_updates) / (10 + n_updates))
        named = dict(model.named_parameters())
        weights = [named[name] for name in self.tensors]  # by name: a loaded state may be in another order
        torch._foreach_lerp_(list(self.tensors.values()), weights, 1 - decay)  # pyright: ignore

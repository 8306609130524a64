"""Optimizers, the parameters with weight decay, and the moving average of the weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.errors import CheckpointError
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


def load_optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], n_steps: int | None = None
) -> None:
    """Restore the state that `optimizer_tensors` returned, after so many steps where it is known.

    A parameter without a gradient has no state; all others have the whole of it.

    Raises:
        CheckpointError: a tensor is missing, not one of this optimizer's, or of another shape or type.
    """
    parameters, saved = dict(model.named_parameters()), dict[str, dict[str, Tensor]]()
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        saved.setdefault(name, {})[key] = value
    keys = {id(p): _state_keys(group) for group in optimizer.param_groups for p in group["params"]}
    if n_steps and any(keys.values()) and not saved:
        raise CheckpointError("the checkpoint lacks the state of the optimizer")
    for name, state in saved.items():
        parameter = parameters.get(name)
        if parameter is None or state.keys() != keys.get(id(parameter)):
            message = f"of {name!r} ({', '.join(sorted(state))})"
            raise CheckpointError(f"the checkpoint's state {message} is not this optimizer's")
        for key, value in state.items():
            if key == "step":
                most = math.inf if n_steps is None else n_steps
                if value.dim() or value.dtype != torch.float32 or not 0 < value.item() <= most:
                    raise CheckpointError(f"the checkpoint's optimizer:{name}/step is not one of {most} steps")
            else:
                check_like(f"optimizer:{name}/{key}", value, parameter)
            # On a GPU the fused kernel expects Adam's step count, a float scalar, on the device of the weights.
            optimizer.state[parameter][key] = value.to(parameter.device).clone()


def _state_keys(group: dict[str, Any]) -> set[str]:
    """Return the names of the state of a group's parameters: Adam's moments, momentum, or nothing."""
    if "betas" in group:
        return {"step", "exp_avg", "exp_avg_sq"}
    # SGD without momentum keeps no average; Muon, whose groups lack SGD's own settings, always does.
    return {"momentum_buffer"} if group.get("momentum") or "nesterov" not in group else set()


def check_like(name: str, saved: Tensor, parameter: Tensor) -> None:
    """Raise CheckpointError unless a saved tensor has the shape and the type of the parameter it belongs to."""
    if saved.shape != parameter.shape or saved.dtype != parameter.dtype:
        kinds = (f"{tuple(t.shape)} of {t.dtype}".replace("torch.", "") for t in (parameter, saved))
        raise CheckpointError(f"the checkpoint's {name} should be {' but is '.join(kinds)}")


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

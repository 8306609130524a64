"""The optimizer, which parameters it decays, and the moving average of the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019) fused into one kernel, Adam (the paper's, 5.3), or plain SGD.

    Weight decay is for the matrices of linear layers; embeddings, norms and biases are left alone.
    """
    decayed = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if n in decayed], "weight_decay": config.weight_decay},
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    betas = (config.beta1, config.beta2)
    match config.optimizer:
        case "adamw":
            return torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=config.eps, fused=True)
        case "adam":
            plain = [{**group, "weight_decay": 0.0} for group in groups]
            return torch.optim.Adam(plain, lr=config.lr, betas=betas, eps=config.eps, fused=True)
        case "sgd":
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.beta1)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name, "decoder.layers.0….weight/exp_avg" → tensor."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, key = full_name.rsplit("/", 1)
        parameter = parameters[name]
        # Adam's step count stays a float scalar; on a GPU the fused kernel wants it beside the weights.
        optimizer.state[parameter][key] = value.to(parameter.device).clone()


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

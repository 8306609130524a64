"""What an update minimises: the cross-entropy, or the mean of it and of the loss at its worst nearby.

All are sums over the labels of a batch, which the loop divides once. What is reported is the cross-entropy alone,
so that curves with and without a regulariser can be laid on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.data.batching import Batch
from glassformer.models.ensemble import members_of
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.tasks import Task

Objective = Callable[[Task, nn.Module, Batch], tuple[Tensor, Tensor]]
"""What is minimised and what is reported of a batch, in nats, summed over its labels."""


def objective_of(train: TrainConfig) -> Objective:
    """The objective that the settings name."""
    smoothing = train.label_smoothing
    if train.adversarial:
        return partial(adversarial, smoothing, train.adversarial)
    return partial(cross_entropy, smoothing)


def cross_entropy(label_smoothing: float, task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The task's own loss."""
    loss = task.loss_sum(model, batch, label_smoothing)
    return loss, loss


def adversarial(
    label_smoothing: float, length: float, task: Task, model: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor]:
    """Adversarial training (Miyato, Dai and Goodfellow 2017, 3): the mean of the loss and of the loss one step uphill.

    The step moves the vectors of a text's tokens, all together, to where the loss rises fastest. It is as long as
    `length` times those vectors: the paper gives its length in units and normalises the embeddings instead, so that a
    model cannot outgrow it. Dropout differs between the two passes. Members of an ensemble learn by themselves.
    """
    each = [_uphill(label_smoothing, length, task, member, batch) for member in members_of(model)]
    minimised, loss = (torch.stack(sums).mean() for sums in zip(*each, strict=True))
    return minimised, loss


def step_uphill(x: Float[Tensor, "B L D"], slope: Float[Tensor, "B L D"], length: float) -> Float[Tensor, "B L D"]:
    """`length` times as long as x, example by example, along the slope; zero where that is, as at padding.

    The vectors of padding do not count towards the length of x.
    """
    used = (slope != 0).any(dim=-1, keepdim=True)
    size = (x * used).flatten(1).norm(dim=1)
    scale = length * size / slope.flatten(1).norm(dim=1).clamp(min=torch.finfo(slope.dtype).tiny)
    return slope * scale[:, None, None]


def _uphill(label_smoothing: float, length: float, task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    entering = list[Tensor]()
    with _embeddings_pass(model, lambda x: entering.append(x) or x):
        loss = task.loss_sum(model, batch, label_smoothing)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    # One backward pass gives the slope and what this loss asks of the weights; a second would cost as much again.
    gradients = torch.autograd.grad(loss, [*entering, *weights], allow_unused=True)
    slopes, of_weights = gradients[: len(entering)], gradients[len(entering) :]
    steps = iter([step_uphill(x.detach(), s, length) for x, s in zip(entering, slopes, strict=True)])
    with _embeddings_pass(model, lambda x: x + next(steps)):
        above = task.loss_sum(model, batch, label_smoothing)
    used = [(weight, g) for weight, g in zip(weights, of_weights, strict=True) if g is not None]
    known = Differentiated.apply(loss.detach(), [g for _, g in used], *(weight for weight, _ in used))
    return (known + above) / 2, loss.detach()


class Differentiated(torch.autograd.Function):
    """A value whose gradients are known, as if it were computed from those tensors here; to be asked for them once.

    They are scaled where they lie: copies of large tables' would cost what is saved.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *_tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        for gradient in {id(gradient): gradient for gradient in gradients}.values():  # two may share one
            gradient.mul_(upstream[0])
        return None, None, *gradients


@contextmanager
def _embeddings_pass(model: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within, what the embeddings of a model hand to its layers goes through `change`."""

    def changed(_table: nn.Module, _ids: object, x: Tensor) -> Tensor:
        return change(x)

    tables = [module for module in model.modules() if isinstance(module, TokenEmbedding)]
    hooks = [table.register_forward_hook(changed) for table in tables]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

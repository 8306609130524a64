"""What an update minimises: the cross-entropy, or with it the agreement of two passes.

Both are sums over the labels of a batch, which the loop divides once. What is reported is the cross-entropy alone,
so that curves with and without a regulariser can be laid on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.data.batching import Batch
from glassformer.models.ensemble import members_of
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.tasks import Task

Objective = Callable[[Task, nn.Module, Batch], tuple[Tensor, Tensor]]
"""What is minimised and what is reported of a batch, in nats, summed over its labels."""


def objective_of(train: TrainConfig) -> Objective:
    """The objective that the settings name."""
    smoothing = train.label_smoothing
    return partial(r_drop, smoothing, train.r_drop) if train.r_drop else partial(cross_entropy, smoothing)


def cross_entropy(
    label_smoothing: float, task: Task, model: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor]:
    """The task's own loss."""
    loss = task.loss_sum(model, batch, label_smoothing)
    return loss, loss


def r_drop(
    label_smoothing: float, weight: float, task: Task, model: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor]:
    """R-Drop (Liang et al. 2021): two passes, which differ by their dropout alone, shall say the same.

    The mean cross-entropy of both, and weight / 4 times the divergence between them, in both directions. (Half of
    the paper's equation 4, which adds the two cross-entropies: so the learning rate keeps its meaning.) Members of an
    ensemble learn by themselves; sums are the mean over them.
    """
    each = [_two_passes(label_smoothing, weight, task, member, batch) for member in members_of(model)]
    minimised, loss = (torch.stack(sums).mean() for sums in zip(*each, strict=True))
    return minimised, loss


def two_way_divergence(first: Float[Tensor, "N V"], second: Float[Tensor, "N V"]) -> Float[Tensor, ""]:
    """KL(p, q) + KL(q, p) of the softmax of two sets of logits, in nats, summed over the rows."""
    p, q = first.float().log_softmax(dim=-1), second.float().log_softmax(dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum()


def _two_passes(
    label_smoothing: float, weight: float, task: Task, model: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor]:
    first, second = (task.scored_logits(model, batch) for _ in range(2))
    labels = batch.labels[batch.labels != IGNORE_INDEX].repeat(2)
    both = cross_entropy_sum(torch.cat([first, second]), labels, label_smoothing)
    return both / 2 + weight / 4 * two_way_divergence(first, second), both / 2

"""The loss that an optimizer step minimises: cross-entropy, or its mean with adversarial cross-entropy.

Losses are sums over the labels of a batch in nats; the training loop divides once. Reported is the plain
cross-entropy in both cases, so that the curves of runs with and without adversarial training can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.data.batching import Batch
from glassformer.models.ensemble import members_of
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.tasks import Task

Loss: TypeAlias = Callable[[Task, nn.Module, Batch], tuple[Tensor, Tensor]]
"""Returns the sum to minimise and the cross-entropy to report of a batch."""


def loss_from_config(config: TrainConfig) -> Loss:
    """Return the loss that the settings `label_smoothing` and `adversarial` name."""
    if config.adversarial:
        return AdversarialLoss(config.label_smoothing, config.adversarial)
    return CrossEntropyLoss(config.label_smoothing)


class LossModule(nn.Module):
    """A model with its task and loss as one module, so that DistributedDataParallel sees one forward pass per batch.

    Args:
        model: the only child with parameters.
        task: computes the loss of a batch from the model.
        loss: what to minimise and what to report.
    """

    def __init__(self, model: nn.Module, task: Task, loss: Loss) -> None:
        super().__init__()
        self.model, self.task, self.loss = model, task, loss

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the sum to minimise and the cross-entropy to report."""
        return self.loss(self.task, self.model, batch)


@dataclass(frozen=True)
class CrossEntropyLoss:
    """The task's cross-entropy with label smoothing (paper, 5.4)."""

    label_smoothing: float = 0.0

    def __call__(self, task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss twice: it is minimised and reported."""
        loss = task.loss_sum(model, batch, self.label_smoothing)
        return loss, loss


@dataclass(frozen=True)
class AdversarialLoss:
    """The mean of the cross-entropy and of the cross-entropy at perturbed embeddings (FGM; Miyato et al. 2017, 3).

    The perturbation of an example's token embeddings points to where its loss rises fastest, and its norm is `epsilon`
    times theirs. Departure: the paper's norm is absolute and its embeddings are normalised, so that a model cannot
    outgrow it. Dropout differs between the two passes. The models of an ensemble are perturbed each by its own
    gradient.
    """

    label_smoothing: float
    epsilon: float

    def __call__(self, task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the mean over the models of an ensemble."""
        sums = [self._adversarial_pass(task, member, batch) for member in members_of(model)]
        objective, loss = (torch.stack(values).mean() for values in zip(*sums, strict=True))
        return objective, loss

    def _adversarial_pass(self, task: Task, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        embeddings = list[Tensor]()
        with _embedding_hook(model, lambda x: embeddings.append(x) or x):
            loss = task.loss_sum(model, batch, self.label_smoothing)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        # One backward pass gives the gradients of embeddings and weights; a second would cost as much again.
        gradients = torch.autograd.grad(loss, [*embeddings, *weights], allow_unused=True)
        slopes, weight_gradients = gradients[: len(embeddings)], gradients[len(embeddings) :]
        pairs = zip(embeddings, slopes, strict=True)
        perturbations = iter([perturbation(x.detach(), slope, self.epsilon) for x, slope in pairs])
        with _embedding_hook(model, lambda x: x + next(perturbations)):
            adversarial_loss = task.loss_sum(model, batch, self.label_smoothing)
        used = [(weight, g) for weight, g in zip(weights, weight_gradients, strict=True) if g is not None]
        clean = PrecomputedGrad.apply(loss.detach(), [g for _, g in used], *(weight for weight, _ in used))
        return (clean + adversarial_loss) / 2, loss.detach()


def perturbation(x: Float[Tensor, "B L D"], gradient: Float[Tensor, "B L D"], epsilon: float) -> Float[Tensor, "B L D"]:
    """Return each example's gradient scaled to `epsilon` times the norm of its x; zero where the gradient is zero.

    Rows of x without a gradient, those of padding, do not count towards its norm.
    """
    used = (gradient != 0).any(dim=-1, keepdim=True)
    norm = (x * used).flatten(1).norm(dim=1)
    scale = epsilon * norm / gradient.flatten(1).norm(dim=1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient * scale[:, None, None]


class PrecomputedGrad(torch.autograd.Function):
    """A value whose gradients are given; its backward pass may run once.

    The gradients are scaled in place: copies of those of large embeddings would cost what is saved.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *_tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        # Two tied weights share one gradient, which is scaled once.
        for gradient in {id(gradient): gradient for gradient in gradients}.values():
            gradient.mul_(grad_outputs[0])
        return None, None, *gradients


@contextmanager
def _embedding_hook(model: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Pass the outputs of a model's token embeddings through `change` within the block."""

    def hook(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return change(output)

    embeddings = [module for module in model.modules() if isinstance(module, TokenEmbedding)]
    handles = [embedding.register_forward_hook(hook) for embedding in embeddings]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

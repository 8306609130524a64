"""The loss of a batch and its gradients: cross-entropy, or its mean with adversarial cross-entropy.

Losses are sums over the labels of a batch in nats; the training loop divides once. Reported is the plain
cross-entropy in both cases, so that the curves of runs with and without adversarial training can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.data.batches import Batch
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.training.state import RunContext
from glassformer.utils.device import autocast


def backward(
    module: nn.Module,
    context: RunContext,
    batch: Batch,
    divisor: float,
    is_last: bool,
    change: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Add the gradient of loss / divisor to the weights' gradients, and return the loss.

    Args:
        module: a `LossModule`, in DDP where there are several processes.
        context: precision and processes.
        batch: one without labels runs with those of other processes, and adds zero.
        divisor: labels of the step.
        is_last: whether no other pass of this step follows, so that processes average their gradients now.
        change: what the outputs of the token embeddings pass through.
    """
    changed = nullcontext() if change is None else embeddings_through(change, module)
    with context.group.sync_gradients(module, is_last), changed:
        with autocast(context.device, context.precision):
            loss = module(batch)
        if not batch.n_labels:
            loss = loss * 0.0
        (loss / divisor).backward()
    return loss.detach()


def adversarial_backward(module: nn.Module, context: RunContext, batch: Batch, divisor: float, is_last: bool) -> Tensor:
    """Do what `backward` does for the mean of the losses at embeddings x and at x + r (FGM; Miyato et al. 2017, 3).

    r, the perturbation of an example's token embeddings, points to where its loss rises fastest, and its norm is
    `adversarial` times theirs. Departure: the paper's norm is absolute and its embeddings are normalised, so that a
    model cannot outgrow it. Dropout differs between the two passes.
    """
    # (B, L, D) each: one of a classifier, source and target of a translator, and so for each member, in the order in
    # which both passes call the embeddings.
    xs: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.requires_grad_()  # of frozen embeddings
        x.retain_grad()
        xs.append(x)
        return x

    loss = backward(module, context, batch, 2 * divisor, False, keep)
    # x.grad is that of loss / (2 · divisor): r depends on its direction alone.
    epsilon = context.config.train.adversarial
    rs = iter([perturbation(x.detach(), cast(Tensor, x.grad), epsilon) for x in xs])
    backward(module, context, batch, 2 * divisor, is_last, lambda x: x + next(rs))
    return loss


def perturbation(x: Float[Tensor, "B L D"], gradient: Float[Tensor, "B L D"], epsilon: float) -> Float[Tensor, "B L D"]:
    """Return each example's gradient scaled to `epsilon` times the norm of its x; zero where the gradient is zero.

    Rows of x without a gradient, those of padding, do not count towards its norm.
    """
    used = (gradient != 0).any(dim=-1, keepdim=True)
    norm = (x * used).flatten(1).norm(dim=1)
    scale = epsilon * norm / gradient.flatten(1).norm(dim=1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient * scale[:, None, None]


@contextmanager
def embeddings_through(change: Callable[[Tensor], Tensor], model: nn.Module) -> Iterator[None]:
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

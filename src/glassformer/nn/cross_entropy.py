"""Cross-entropy as a sum, so that whoever divides does it once, over all tokens; and fused equivalents of it.

`torch.nn.functional.cross_entropy` reads and writes a full table of logits in fp32 six times. In the fused ones a chunk
becomes its gradient while it is in the cache. With p the softmax of a row z and q its smoothed label, the loss is
log Σ exp z - Σ q z, and its gradient p - q.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

IGNORE_INDEX = -100
"""The label of a position that is not scored."""


def cross_entropy_sum(
    logits: Float[Tensor, "... V"], labels: Int[Tensor, "..."], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the sum over all positions of -Σ q(v) log softmax(logits)(v), in nats and fp32.

    q is the label's one-hot; with label smoothing ε (paper, 5.4) it is ε/V for every token and 1 - ε more for the
    label. Positions labelled IGNORE_INDEX count 0.
    """
    rows, labels = logits.flatten(0, -2), labels.flatten()
    if is_faster(rows):
        return CrossEntropySum.apply(rows, labels, label_smoothing, IGNORE_INDEX)  # pyright: ignore
    kwargs = {"ignore_index": IGNORE_INDEX, "reduction": "sum", "label_smoothing": label_smoothing}
    return F.cross_entropy(rows.float(), labels, **kwargs)


CHUNK_LOGITS = 1 << 19
"""Logits of a chunk: 2 MB in fp32, the cache of a core."""


def is_faster(logits: Float[Tensor, "N V"]) -> bool:
    """Return True where `CrossEntropySum` is faster: on a CPU, for logits in bf16 with a gradient.

    It makes no table of logits in fp32, which takes twice the memory of the logits; in fp32 nothing is gained.
    """
    return logits.device.type == "cpu" and logits.dtype == torch.bfloat16 and logits.requires_grad


class CrossEntropySum(torch.autograd.Function):
    """Fused implementation of `cross_entropy_sum`, for logits that need a gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], label_smoothing: float, ignore_index: int
    ) -> Float[Tensor, ""]:
        size = logits.shape[-1]
        spread = label_smoothing / size
        gradient, total = torch.empty_like(logits), torch.zeros((), device=logits.device)
        n = max(1, CHUNK_LOGITS // size)
        for z, y, grad in zip(logits.split(n), labels.split(n), gradient.split(n), strict=True):
            z, scored, label = z.float(), (y != ignore_index)[:, None], y.clamp(min=0)[:, None]
            p = z.softmax(dim=-1)
            # log Σ exp z; the largest p is at least 1/V, so that its logarithm is finite.
            loss = z.amax(dim=-1, keepdim=True) - p.amax(dim=-1, keepdim=True).log()
            loss = loss - (1 - label_smoothing) * z.gather(1, label)
            if label_smoothing:
                loss = loss - spread * z.sum(dim=-1, keepdim=True)
                p.sub_(spread)
            p.scatter_add_(1, label, torch.full_like(loss, label_smoothing - 1))
            total += loss.masked_fill(~scored, 0.0).sum()
            grad.copy_(p if bool(scored.all()) else p.masked_fill_(~scored, 0.0))
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None, None, None


class LinearCrossEntropy(torch.autograd.Function):
    """`cross_entropy_sum(F.linear(hidden, weight), labels)`, `chunk` rows at a time, so that memory holds few logits.

    16,000 tokens and a vocabulary of 50,000 have 3.3 GB of logits in fp32. What is kept are gradients of the sizes of
    the factors (Hsu et al. 2024, "Liger Kernel"). Products are in autocast's type where it is on, sums in fp32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        labels: Int[Tensor, " N"],
        label_smoothing: float,
        ignore_index: int,
        chunk: int,
    ) -> Float[Tensor, ""]:
        device, spread = hidden.device.type, label_smoothing / weight.shape[0]
        autocast = device != "meta" and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else hidden.dtype
        x, w = hidden.to(dtype), weight.to(dtype)
        total = torch.zeros((), device=hidden.device)
        x_grad, w_grad = torch.empty_like(x), torch.zeros_like(weight)
        for rows, y, grad in zip(x.split(chunk), labels.split(chunk), x_grad.split(chunk), strict=True):
            z, scored, label = F.linear(rows, w).float(), (y != ignore_index)[:, None], y.clamp(min=0)[:, None]
            log_sum = z.logsumexp(dim=-1, keepdim=True)
            loss = log_sum - (1 - label_smoothing) * z.gather(1, label) - spread * z.sum(dim=-1, keepdim=True)
            total += loss.masked_fill(~scored, 0.0).sum()
            z_grad = z.sub_(log_sum).exp_().sub_(spread)
            z_grad.scatter_add_(1, label, torch.full_like(loss, label_smoothing - 1))
            z_grad = z_grad.masked_fill_(~scored, 0.0).to(dtype)
            grad.copy_(z_grad @ w)
            w_grad += z_grad.T @ rows
        ctx.save_for_backward(x_grad.to(hidden.dtype), w_grad)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x_grad, w_grad = ctx.saved_tensors
        return x_grad * grads[0], w_grad * grads[0], None, None, None, None

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

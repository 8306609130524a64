"""Cross-entropy over a vocabulary, a few rows at a time, with the gradient computed on the way.

`torch.nn.functional.cross_entropy` turns all logits to fp32, takes their logarithmic softmax, and goes over both again
for the gradient: six passes over a tensor that no cache holds. Here some rows are turned, scored and turned into their
gradient while they are in the cache, and what is kept is the gradient alone, in the type of the logits.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

ELEMENTS = 1 << 19
"""Logits that are worked on at a time: 2 MB in fp32, the cache of a core."""


def pays(logits: Float[Tensor, "N V"]) -> bool:
    """Return True where this is faster: on a CPU, for many logits in half precision with a gradient.

    Measured on one AVX-512 core, forward and backward with the projection: 1,927 rows of 4,000 take 80 ms instead of
    154, of 8,000 226 instead of 450; 4,096 of 65 take 5.9 instead of 4.7, and in fp32 nothing is gained.
    """
    on_cpu = logits.device.type == "cpu" and logits.dtype == torch.bfloat16
    return on_cpu and logits.requires_grad and logits.shape[-1] >= 512


class CrossEntropySum(torch.autograd.Function):
    """The sum of `nn.cross_entropy.cross_entropy_sum`, for logits that need a gradient.

    With p the softmax of a row z, and q the target: the loss is log Σ exp z - Σ q z, and its gradient p - q.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], label_smoothing: float, ignore_index: int
    ) -> Float[Tensor, ""]:
        size = logits.shape[-1]
        spread = label_smoothing / size
        gradient, total = torch.empty_like(logits), torch.zeros((), device=logits.device)
        rows = max(1, ELEMENTS // size)
        for z, y, kept in zip(logits.split(rows), labels.split(rows), gradient.split(rows), strict=True):
            z, scored = z.float(), (y != ignore_index)[:, None]
            label_index = y.clamp(min=0)[:, None]
            p = z.softmax(dim=-1)
            # The largest p is at least 1/V, so its logarithm is exact where that of a label's p could be -inf.
            loss = z.amax(dim=-1, keepdim=True) - p.amax(dim=-1, keepdim=True).log()  # log Σ exp z, (n, 1)
            loss = loss - (1 - label_smoothing) * z.gather(1, label_index)
            if label_smoothing:
                loss = loss - spread * z.sum(dim=-1, keepdim=True)
                p.sub_(spread)
            p.scatter_add_(1, label_index, torch.full_like(loss, label_smoothing - 1))
            total += loss.masked_fill(~scored, 0.0).sum()
            kept.copy_(p if bool(scored.all()) else p.masked_fill_(~scored, 0.0))
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None, None, None

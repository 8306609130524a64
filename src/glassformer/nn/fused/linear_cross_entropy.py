"""Cross-entropy of a projection to the vocabulary, without holding all logits of a batch.

16,000 tokens and a vocabulary of 50,000 are 3.3 GB of logits in fp32, and a softmax and a gradient of as much. Here
some rows at a time are projected, scored and turned into the gradients of both factors, in the same forward pass:
nothing is computed twice, and what is kept are gradients of the sizes of the factors (the idea of Hsu et al. 2024,
"Liger Kernel").
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

MAX_LOGITS = 2**28
"""Tokens x vocabulary above which the loss of a language model is computed in chunks of tokens: 1.1 GB of logits in
fp32.

A batch of the recipe shakespeare has at most .5 million, of lm 41 million (2,048 tokens and 20,000 words), and of
gpt2-124m 3.3 billion (65,536 and 50,304), which is the only one in chunks.
"""


class ProjectedCrossEntropySum(torch.autograd.Function):
    """`cross_entropy_sum(F.linear(hidden, weight), labels)` of `nn/cross_entropy.py`, `rows` rows at a time.

    Products are in autocast's type where it is on; softmax and sums in fp32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        labels: Int[Tensor, " N"],
        label_smoothing: float,
        ignore_index: int,
        rows: int,
    ) -> Float[Tensor, ""]:
        kind, spread = hidden.device.type, label_smoothing / weight.shape[0]
        halved = kind != "meta" and torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if halved else hidden.dtype
        x, w = hidden.to(dtype), weight.to(dtype)
        total = torch.zeros((), device=hidden.device)
        of_hidden, of_weight = torch.empty_like(x), torch.zeros_like(weight)
        for part, y, kept in zip(x.split(rows), labels.split(rows), of_hidden.split(rows), strict=True):
            z, label_index, scored = F.linear(part, w).float(), y.clamp(min=0)[:, None], (y != ignore_index)[:, None]
            log_sum = z.logsumexp(dim=-1, keepdim=True)  # (n, 1)
            loss = log_sum - (1 - label_smoothing) * z.gather(1, label_index) - spread * z.sum(dim=-1, keepdim=True)
            total += loss.masked_fill(~scored, 0.0).sum()
            gradient = z.sub_(log_sum).exp_().sub_(spread)  # softmax - q, q the smoothed label
            gradient.scatter_add_(1, label_index, torch.full_like(loss, label_smoothing - 1))
            gradient = gradient.masked_fill_(~scored, 0.0).to(dtype)
            kept.copy_(gradient @ w)
            of_weight += gradient.T @ part
        ctx.save_for_backward(of_hidden.to(hidden.dtype), of_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * grads[0], of_weight * grads[0], None, None, None, None

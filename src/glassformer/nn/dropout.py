"""Dropout (Srivastava et al. 2014), with a faster random mask on CPUs.

`torch.nn.functional.dropout` draws one Bernoulli number an element, which on a CPU costs more than the
matrix product it follows; eight random bytes cut from one 64-bit draw cost a sixth of that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p).

    On a CPU p is rounded to a multiple of 1/256, and the scale is that of the rounded p.
    """
    if p <= 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    threshold = min(255, max(1, round(p * 256)))
    n = x.numel()
    noise = torch.empty((n + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:n]
    keep = (noise >= threshold).view(x.shape).to(x.dtype).mul_(256 / (256 - threshold))
    return x * keep


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"

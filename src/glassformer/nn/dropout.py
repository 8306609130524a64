"""Dropout (Srivastava et al. 2014), with a random mask that is cheap on CPUs."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p).

    On a CPU p is rounded to a multiple of 1/256. `torch.nn.functional.dropout` draws a Bernoulli number per element
    there, which costs more than the matrix product before it; a byte of a 64-bit draw costs a sixth of that.
    """
    if p <= 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    threshold, n = min(255, max(1, round(p * 256))), x.numel()
    noise = torch.empty((n + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:n]
    keep = noise.clamp_(threshold - 1, threshold).sub_(threshold - 1)  # noise >= threshold, at a twentieth of its cost
    return x * keep.view(x.shape).to(x.dtype).mul_(256 / (256 - threshold))


class Dropout(nn.Module):
    """`dropout` in training, the identity in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"

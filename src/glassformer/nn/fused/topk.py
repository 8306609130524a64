"""The k largest sums of two broadcast tensors, without sorting all of them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 32
"""Neighbours that are first compared by their maximum, which costs a tenth of sorting them."""


def add_topk(
    x: Float[Tensor, "N w V"], offset: Float[Tensor, "N w"], k: int
) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Return the values and indices of `(x + offset[:, :, None]).view(N, -1).topk(k)`, for w · (V // BLOCK) >= k.

    The k largest lie in the k blocks with the largest maxima, or after the last full block of a row.
    """
    n, width, size = x.shape
    n_blocks, device = size // BLOCK, x.device
    blocks = x[:, :, : n_blocks * BLOCK].unflatten(2, (n_blocks, BLOCK))
    maxima = (blocks.amax(dim=3) + offset[:, :, None]).view(n, -1)
    block = maxima.topk(k, dim=1, sorted=False).indices
    first = block // n_blocks * size + block % n_blocks * BLOCK
    candidates = (first[:, :, None] + torch.arange(BLOCK, device=device)).view(n, -1)
    rest = torch.arange(width, device=device)[:, None] * size + torch.arange(n_blocks * BLOCK, size, device=device)
    candidates = torch.cat([candidates, rest.view(1, -1).expand(n, -1)], dim=1)
    sums = x.view(n, -1).gather(1, candidates) + offset.gather(1, candidates // size)
    values, index = sums.topk(k, dim=1)
    return values, candidates.gather(1, index)

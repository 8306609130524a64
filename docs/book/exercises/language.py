"""Nucleus sampling: `top_p(p, mass)`, the smallest set of tokens with a given probability."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(p: Tensor, mass: Tensor) -> Tensor:
    """Return a mask (V,) of the fewest tokens whose probabilities p (V,) sum to at least `mass`."""
    ordered, ids = p.sort(descending=True)
    before = ordered.cumsum(dim=0) - ordered
    mask = torch.zeros_like(p, dtype=torch.bool)
    mask[ids] = before < mass
    return mask


def library(p: Tensor, mass: Tensor) -> Tensor:
    """Return what the library computes; the reference."""
    from glassformer.config import DecodeConfig
    from glassformer.decode.sampling import filter_mask

    return filter_mask(p[None], DecodeConfig(top_p=float(mass)))[0]


def one_too_few(p: Tensor, mass: Tensor) -> Tensor:
    """Leave out the token that crosses the mass."""
    ordered, ids = p.sort(descending=True)
    mask = torch.zeros_like(p, dtype=torch.bool)
    mask[ids] = ordered.cumsum(dim=0) <= mass
    return mask


def in_order_of_ids(p: Tensor, mass: Tensor) -> Tensor:
    """Sum in the order of ids."""
    return p.cumsum(dim=0) - p < mass


def not_put_back(p: Tensor, mass: Tensor) -> Tensor:
    """Return the mask in sorted order."""
    ordered = p.sort(descending=True).values
    return ordered.cumsum(dim=0) - ordered < mass


def least_likely_first(p: Tensor, mass: Tensor) -> Tensor:
    """Begin with the least probable tokens."""
    ordered, ids = p.sort()
    mask = torch.zeros_like(p, dtype=torch.bool)
    mask[ids] = ordered.cumsum(dim=0) - ordered < mass
    return mask


def by_threshold(p: Tensor, mass: Tensor) -> Tensor:
    """Keep tokens above a probability."""
    return p >= 1 - mass


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return distinct probabilities and a mass."""
    n = int(torch.randint(4, 12, (), generator=generator))
    p = (2 * torch.randn(n, generator=generator)).softmax(dim=0)
    return p, 0.2 + 0.7 * torch.rand((), generator=generator)


EXERCISE = Exercise(
    reference=library,
    inputs=inputs,
    mistakes={
        one_too_few: "the token that crosses the mass belongs to the set; without it the sum is too small",
        in_order_of_ids: "sort first: the most probable tokens make the smallest set",
        not_put_back: "the mask is in sorted order; put it back to the order of the ids",
        least_likely_first: "sort in descending order",
        by_threshold: "the mass is of the whole set, not a threshold for each token",
    },
)

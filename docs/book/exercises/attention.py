"""Attention without parameters: `simple_attention(x)`, for x of shape (T, D)."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(x: Tensor) -> Tensor:
    """Return for each token the mean of all tokens, weighted by the softmax of their products: (T, D) from (T, D)."""
    weights = (x @ x.T).softmax(dim=-1)
    return weights @ x


def loop(x: Tensor) -> Tensor:
    """Return the same, one token and one product at a time; the reference."""
    rows = []
    for query in x:
        scores = torch.stack([(query * key).sum() for key in x])
        exponentials = (scores - scores.max()).exp()
        weights = exponentials / exponentials.sum()
        rows.append(sum((weight * value for weight, value in zip(weights, x, strict=True)), torch.zeros(x.shape[1])))
    return torch.stack(rows)


def softmax_over_queries(x: Tensor) -> Tensor:
    """Normalize columns instead of rows."""
    return (x @ x.T).softmax(dim=0) @ x


def no_softmax(x: Tensor) -> Tensor:
    """Leave the softmax out."""
    return x @ x.T @ x


def weights_only(x: Tensor) -> Tensor:
    """Return the weights instead of the means."""
    return (x @ x.T).softmax(dim=-1)


def products_of_features(x: Tensor) -> Tensor:
    """Compare features instead of tokens."""
    return x @ (x.T @ x).softmax(dim=-1)


def scaled(x: Tensor) -> Tensor:
    """Divide by the square root of the width, which is right for the next chapter."""
    return (x @ x.T / x.shape[1] ** 0.5).softmax(dim=-1) @ x


EXERCISE = Exercise(
    reference=loop,
    inputs=lambda generator: (
        torch.randn(
            int(torch.randint(2, 7, (), generator=generator)),
            int(torch.randint(8, 12, (), generator=generator)),
            generator=generator,
        ),
    ),
    mistakes={
        softmax_over_queries: "each row of the weights must sum to 1; `dim=0` normalizes the columns",
        no_softmax: "the products are not yet weights: they can be negative, and no row sums to 1",
        weights_only: "these are the weights; multiply them by x to get a vector for each token",
        products_of_features: "`x.T @ x` compares features with features; tokens are the rows of x",
        scaled: "no scale here: the next chapter shows why it is needed",
    },
)

"""The gradient of one attention weight: `weight_and_score_grad(weights, values, g, query, key)`."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return the gradients of one weight and of its score as (2,); weights (Q, K), values (K, E), g (Q, E)."""
    of_row = values @ g[query]  # (K,), of all weights of this query
    mean = (weights[query] * of_row).sum()
    return torch.stack([of_row[key], weights[query, key] * (of_row[key] - mean)])


def autograd(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return what autograd computes from scores that have these weights; the reference."""
    scores = weights.log().requires_grad_(True)
    again = scores.softmax(dim=-1)
    found = torch.autograd.grad(((again @ values) * g).sum(), (again, scores))
    return torch.stack([grad[query, key] for grad in found])


def without_the_sum(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Treat the softmax as if each score changed its own weight only."""
    of_weight = values[key] @ g[query]
    return torch.stack([of_weight, weights[query, key] * of_weight])


def with_plain_mean(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Subtract the mean of the row, each key counted alike."""
    of_row = values @ g[query]
    return torch.stack([of_row[key], weights[query, key] * (of_row[key] - of_row.mean())])


def over_queries(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Sum over the queries that attend to the key, not over the keys of the query."""
    of_column = g @ values[key]
    mean = (weights[:, key] * of_column).sum()
    return torch.stack([of_column[query], weights[query, key] * (of_column[query] - mean)])


def exchanged(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Take the gradient of the key's row and the value of the query's."""
    of_row = values @ g[key]
    mean = (weights[query] * of_row).sum()
    return torch.stack([of_row[query], weights[query, key] * (of_row[query] - mean)])


def weight_again(weights: Tensor, values: Tensor, g: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Multiply the gradient of the weight by the weight."""
    found = solution(weights, values, g, query, key)
    return torch.stack([found[0] * weights[query, key], found[1]])


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return weights, values, the gradient of the output, a query and a key that can be exchanged; all sizes differ."""
    n_queries, n_keys, width = (torch.randperm(5, generator=generator)[:3] + 2).tolist()
    query, key = torch.randperm(min(n_queries, n_keys), generator=generator)[:2]
    weights = torch.randn(n_queries, n_keys, generator=generator).softmax(dim=-1)
    values, g = (torch.randn(n, width, generator=generator) for n in (n_keys, n_queries))
    return weights, values, g, query, key


EXERCISE = Exercise(
    reference=autograd,
    inputs=inputs,
    mistakes={
        without_the_sum: "a larger score lowers the weights of the other keys: subtract the weighted mean of the row",
        with_plain_mean: "the mean that is subtracted is weighed by the attention weights",
        over_queries: "the softmax is over the keys of one query, so the sum is over the row, not over the column",
        exchanged: "the output of the query is a mean of values of keys: take g of the query and the value of the key",
        weight_again: "the weight is a factor of the score's gradient only; its own gradient is a product of vectors",
    },
)

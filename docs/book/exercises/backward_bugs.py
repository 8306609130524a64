"""A backward pass to mend: `table_grad(ids, table, query, label)`, the gradient of a table that is used twice."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from exercises.checker import Exercise, Function

CHAPTER = "one-step"
"""The chapter whose second exercise this is."""


def solution(ids: Tensor, table: Tensor, query: Tensor, label: Tensor) -> Tensor:
    """Return the gradient of the loss for the table (V, D); ids are (L,), query (D,), label has no axes."""
    x = table[ids] - table[ids].mean(dim=-1, keepdim=True)
    scale = (x.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()
    h = x * scale
    weights = (h @ query).softmax(dim=0)
    context = weights @ h
    d_logits = (table @ context).softmax(dim=0)
    d_logits[label] -= 1
    d_context = d_logits @ table
    d_weights = h @ d_context
    d_scores = weights * (d_weights - (weights * d_weights).sum())
    d_h = weights[:, None] * d_context + d_scores[:, None] * query
    d_x = d_h - d_h.mean(dim=-1, keepdim=True) - h * (d_h * h).mean(dim=-1, keepdim=True)
    d_table = d_logits[:, None] * context
    return d_table.index_add(0, ids, scale * d_x)


def autograd(ids: Tensor, table: Tensor, query: Tensor, label: Tensor) -> Tensor:
    """Return what autograd computes; the reference."""
    table = table.clone().requires_grad_(True)
    h = torch.nn.functional.layer_norm(table[ids], table.shape[1:])
    context = (h @ query).softmax(dim=0) @ h
    loss = torch.nn.functional.cross_entropy(table @ context, label)
    return torch.autograd.grad(loss, table)[0]


def with_bugs(softmax: bool, norm: bool, tied: bool) -> Function:
    """Return the backward pass with some of the three bugs of the chapter."""

    def table_grad(ids: Tensor, table: Tensor, query: Tensor, label: Tensor) -> Tensor:
        x = table[ids] - table[ids].mean(dim=-1, keepdim=True)
        scale = (x.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()
        h = x * scale
        weights = (h @ query).softmax(dim=0)
        context = weights @ h
        d_logits = (table @ context).softmax(dim=0)
        d_logits[label] -= 1
        d_context = d_logits @ table
        d_weights = h @ d_context
        mean = 0 if softmax else (weights * d_weights).sum()
        d_h = weights[:, None] * d_context + (weights * (d_weights - mean))[:, None] * query
        mean = 0 if norm else d_h.mean(dim=-1, keepdim=True)
        d_x = d_h - mean - h * (d_h * h).mean(dim=-1, keepdim=True)
        d_table = torch.zeros_like(table) if tied else d_logits[:, None] * context
        return d_table.index_add(0, ids, scale * d_x)

    left = {"softmax": softmax, "norm": norm, "tied table": tied}
    table_grad.__name__ = " and ".join(name for name, there in left.items() if there)
    return table_grad


def hint(softmax: bool, norm: bool, tied: bool) -> str:
    """Return what to look at while some bugs are left."""
    left = [
        *(["the softmax: each score changes all weights, which sum to 1"] if softmax else []),
        *(["the norm: a number added to all features of a token changes nothing after it"] if norm else []),
        *(["the table: it is read twice, for tokens and for logits"] if tied else []),
    ]
    count = {1: "one bug is", 2: "two bugs are", 3: "all three bugs are"}[len(left)]
    return f"{count} left. Look at {'; and at '.join(left)}"


SOME_BUGS = [bugs for bugs in itertools.product((True, False), repeat=3) if any(bugs)]


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return ids, a table, a query and a label; all sizes differ, and one id comes twice."""
    length, width, size = sorted((torch.randperm(7, generator=generator)[:3] + 3).tolist())
    ids = torch.randint(0, size, (length,), generator=generator)
    ids[-1] = ids[0]
    table, query = (torch.randn(*shape, generator=generator) for shape in ((size, width), (width,)))
    return ids, table, query, torch.randint(0, size, (), generator=generator)


EXERCISE = Exercise(reference=autograd, inputs=inputs, mistakes={with_bugs(*bugs): hint(*bugs) for bugs in SOME_BUGS})

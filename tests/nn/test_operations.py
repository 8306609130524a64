"""The table of operations: each row is what torch computes, and each gradient what autograd computes.

`web/test/operations.test.ts` holds the walker of the page against the same cases, which

    python -m tests.nn.test_operations > web/test/operations.json

writes, with the table of operations and of steps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.explain.capture.sites import SITES
from glassformer.explain.page.manifest import operations_json
from glassformer.nn.embeddings import sinusoidal
from glassformer.nn.operations import OPERATIONS, row_of, run

L, D, H, E, V, N = 4, 6, 2, 4, 7, 5
"""Tokens, features, heads, features of a head, rows of a table, outputs of a linear layer."""


class Case(NamedTuple):
    op: str
    arguments: dict[str, Tensor]
    attrs: dict[str, Any]
    own: Callable[..., Tensor]
    """The same by torch's own functions, of the arguments in order."""


def cases() -> Iterator[Case]:
    generator = torch.Generator().manual_seed(1)

    def r(*shape: int) -> Tensor:
        """Return normal numbers, as 32-bit floats hold them, in double precision."""
        return torch.randn(*shape, generator=generator).double()

    ids, ngrams = torch.tensor([3, 1, 3, 0]), torch.tensor([[1, 2, 0], [2, 2, 0], [0, 0, 0], [4, 1, 2]])
    padded = torch.tensor([[True, True, True, False]])
    causal, nothing = torch.ones(L, L).tril().bool(), torch.zeros(1, L).bool()
    yield Case("lookup", {"ids": ids, "weight": r(V, D)}, {}, lambda ids, w: F.embedding(ids, w))
    yield Case("padded_lookup", {"ids": ids, "weight": zero_row(r(V, D))}, {}, lambda i, w: F.embedding(i, w, 0))
    for how in ("mean", "sum"):
        table = {"ids": ngrams, "weight": zero_row(r(V, D))}
        yield Case(f"embedding_bag:{how}", table, {}, lambda i, w, m=how: F.embedding_bag(i, w, mode=m, padding_idx=0))
    yield Case("positions:learned", {"weight": r(V, D)}, {"first": 2}, lambda w: w[2 : 2 + L])
    yield Case("positions:sinusoidal", {}, {"amplitude": 0.5}, lambda: 0.5 * sinusoidal(L, D))
    yield Case("scale", {"x": r(L, D)}, {"factor": 2.5}, lambda x: torch.mul(x, 2.5))
    yield Case("add", {"a": r(L, D), "b": r(L, D)}, {}, torch.add)
    norm = {"x": r(L, D), "weight": r(D)}
    yield Case("layer_norm", norm | {"bias": r(D)}, {"eps": 1e-5}, lambda x, w, b: F.layer_norm(x, (D,), w, b, 1e-5))
    yield Case("rms_norm", norm, {"eps": 1e-5}, lambda x, w: F.rms_norm(x, (D,), w, 1e-5))
    yield Case("linear", {"x": r(L, D), "weight": r(N, D), "bias": r(N)}, {}, F.linear)
    yield Case("linear", {"x": r(D), "weight": r(N, D)}, {}, F.linear)
    heads = r(H, L, E)
    yield Case("split_heads", {"x": r(L, H * E)}, {}, lambda x: torch.stack(x.chunk(H, dim=-1)))
    yield Case("concat_heads", {"x": heads}, {}, lambda x: torch.cat(x.unbind(0), dim=-1))
    yield Case("rotate", {"x": heads}, {"base": 100.0}, rotated)
    yield Case("dot", {"q": heads, "k": r(H, 3, E)}, {}, lambda q, k: torch.einsum("hqe,hke->hqk", q, k))
    yield Case("mix", {"weights": r(H, L, 3), "v": r(H, 3, E)}, {}, lambda w, v: torch.einsum("hqk,hke->hqe", w, v))
    yield Case("softmax", {"scores": r(H, L, 3)}, {}, lambda s: F.softmax(s, dim=-1))
    for mask in (padded, causal, nothing):
        yield Case("softmax", {"scores": r(H, L, L), "mask": mask}, {}, masked_softmax)
    activations = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "square": torch.square}
    for name, function in activations.items():
        yield Case(name, {"x": r(L, D)}, {}, function)
    yield Case("gelu_tanh", {"x": r(L, D)}, {}, lambda x: F.gelu(x, approximate="tanh"))
    yield Case("swiglu", {"gate": r(L, D), "x": r(L, D)}, {}, lambda gate, x: F.silu(gate) * x)
    for how in ("mean", "max", "mean+max", "first"):
        for given in ({}, {"mask": padded}, {"mask": nothing}):
            yield Case(f"pool:{how}", {"x": r(L, D)} | given, {}, lambda x, m=None, how=how: pooled(x, m, how))
    yield Case("pin_zero", {"x": r(1)}, {}, lambda x: F.pad(x, (1, 0)))
    q = F.softmax(r(L, V), dim=-1)
    yield Case(
        "cross_entropy", {"logits": r(L, V), "targets": q}, {}, lambda z, q: F.cross_entropy(z, q, reduction="none")
    )
    yield Case("cross_entropy", {"logits": r(V), "targets": q[0]}, {}, lambda z, q: F.cross_entropy(z, q).reshape(1))
    yield Case("mean_loss", {"x": r(L)}, {"labels": [2, None, 5, 0]}, lambda x: x[[0, 2, 3]].mean().reshape(1))
    yield Case("error", {"output": r(1)}, {"number": 1.5}, lambda x: torch.sub(x, 1.5))


def zero_row(table: Tensor) -> Tensor:
    table[0] = 0
    return table


def rotated(x: Tensor) -> Tensor:
    """Return pairs of features as complex numbers, turned by pos · base^(-2j/E)."""
    angle = torch.arange(L)[:, None] * 100.0 ** (-torch.arange(E // 2).double() / (E // 2))
    turned = torch.complex(x[..., : E // 2], x[..., E // 2 :]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask.any(dim=-1, keepdim=True), scores.masked_fill(~mask, -1e300).softmax(dim=-1), 0.0)


def pooled(x: Tensor, mask: Tensor | None, how: str) -> Tensor:
    real = [i for i in range(L) if mask is None or mask[0, i]]
    seen = x[real] if real else 0 * x[:1]
    parts = {"mean": lambda: seen.mean(0), "max": lambda: seen.amax(0), "first": lambda: x[0] * (0 in real)}
    return torch.cat([parts[name]() for name in how.split("+")])


def with_gradients() -> Iterator[tuple[str, dict[str, Tensor], dict[str, Any], Tensor]]:
    """Yield operation, arguments, constants and result of each case, and by autograd of each of its gradients."""
    for op, arguments, attrs, own in cases():
        gradients = [name for name in OPERATIONS[op].gradients if name in arguments]
        leaves = {k: v.clone().requires_grad_() if k in gradients else v for k, v in arguments.items()}
        y = own(*leaves.values())
        yield op, arguments, attrs, y.detach()
        if gradients:
            g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).double()
            found = torch.autograd.grad(y, [leaves[name] for name in gradients], g)
            for name, gradient in zip(gradients, found, strict=True):
                yield f"{op}.{name}", {**arguments, "y": y.detach(), "g": g}, attrs, gradient


CASES = [*with_gradients()]


@pytest.mark.parametrize(("op", "arguments", "attrs", "expected"), CASES, ids=[op for op, *_ in CASES])
def test_a_row_is_what_torch_and_autograd_compute(
    op: str, arguments: dict[str, Tensor], attrs: dict[str, Any], expected: Tensor
) -> None:
    found = run(op, arguments, attrs, tuple(expected.shape))
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-6, atol=1e-6)


def test_every_row_has_a_case_with_and_without_its_optional_argument() -> None:
    for name, row in OPERATIONS.items():
        given = [case.arguments.keys() for case in cases() if case.op == name]
        assert bool(given) == bool(row.gives), name
        for optional in row_of(name).optional:
            assert {optional in keys for keys in given} == {True, False}, name


def _stored(x: Tensor) -> dict[str, Any]:
    kind = "f32" if x.is_floating_point() else "u8" if x.dtype == torch.bool else "i32"
    return {"shape": list(x.shape), "dtype": kind, "data": x.double().flatten().tolist()}


if __name__ == "__main__":
    written = [
        {"op": op, "attrs": attrs, "arguments": {k: _stored(v) for k, v in arguments.items()}, "expected": _stored(y)}
        for op, arguments, attrs, y in with_gradients()
    ]
    sites = {name: [site.op, *site.axes] for name, site in SITES.items() if site.op != "input"}
    json.dump({"rows": operations_json(), "sites": sites, "cases": written}, sys.stdout, separators=(",", ":"))

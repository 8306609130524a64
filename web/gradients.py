"""Numbers for the page's tests of the backward pass: every operation on random tensors, and its result by autograd.

python web/gradients.py > web/test/gradients.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

L, D, H, E, V, N = 4, 6, 2, 3, 7, 5
"""Tokens, features, heads, features of a head, vocabulary, outputs of a linear layer."""
TOKENS, HEADS = ("token", "feature"), ("head", "token", "head_feature")
ATTENTION = ("head", "token", "key")
RANDOM = torch.Generator().manual_seed(1)


def drawn(*shape: int) -> Tensor:
    """Return normal numbers, as 32-bit floats hold them, in double precision."""
    return torch.randn(*shape, generator=RANDOM).double()


def rotated(x: Tensor, base: float = 100.0) -> Tensor:
    """Rotate pairs of features j and j + E/2 by pos · base^(-2j/E)."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * base ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()), -1)


def pooled(how: str) -> Callable[..., Tensor]:
    """Return the pooling of all tokens but the last."""
    parts = {"mean": lambda x: x[:-1].mean(0), "max": lambda x: x[:-1].amax(0), "first": lambda x: x[0]}
    return lambda x: torch.cat([parts[name](x) for name in how.split("+")])


def case(
    op: str,
    forward: Callable[..., Tensor],
    of: Tensor,
    axes: tuple[str, ...],
    reads: list[tuple[Any, tuple[str, ...]]],
    *,
    gradient: Tensor | None = None,
    params: dict[str, tuple[Tensor, tuple[str, ...]]] | None = None,
    attrs: dict[str, Any] | None = None,
    out: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Return a case: what an operation reads, "g" being the gradient of `forward(of)`, and what it gives."""
    x = of.clone().requires_grad_()
    y = forward(x)
    g = drawn(*y.shape) if gradient is None else gradient
    (expected,) = torch.autograd.grad(y, x, g)
    inputs = [(g, axes_ or out or axes) if isinstance(value, str) else (value, axes_) for value, axes_ in reads]
    return {
        "op": op,
        "attrs": attrs or {},
        "axes": axes,
        "shape": list(expected.shape),
        "inputs": [_stored(value, names) for value, names in inputs],
        "params": {role: _stored(value, names) for role, (value, names) in (params or {}).items()},
        "expected": expected.flatten().tolist(),
    }


def _stored(value: Tensor, axes: tuple[str, ...]) -> dict[str, Any]:
    kind = "f32" if value.is_floating_point() else "u8" if value.dtype == torch.bool else "i32"
    return {
        "axes": axes,
        "shape": list(value.shape),
        "dtype": kind,
        "data": value.int().flatten().tolist() if kind != "f32" else value.flatten().tolist(),
    }


def cases() -> list[dict[str, Any]]:
    """Return one case or more of every operation of the backward pass."""
    g = ("g", ())
    x, w, weight, gate = drawn(L, D), drawn(D), drawn(N, D), drawn(L, D)
    heads, scores = drawn(H, L, 4), drawn(H, L, L)
    ids, ngrams = torch.tensor([3, 1, 3, 0]), torch.tensor([[1, 2, 0], [2, 2, 0], [0, 0, 0], [4, 1, 2]])
    mask = torch.tensor([[True] * (L - 1) + [False]])
    y = scores.softmax(-1)
    labels: list[int | None] = [2, None, 5, 0]
    z, q = drawn(L, V), drawn(L, V).softmax(-1) * torch.tensor([[1.0], [0.0], [1.0], [1.0]])
    there = (ngrams > 0)[..., None]

    def bag(table: Tensor, how: str) -> Tensor:
        total = (table[ngrams] * there).sum(-2)
        return total / there.sum(-2).clamp(min=1) if how == "mean" else total

    found = [
        case(
            "lookup_backward",
            lambda t: t[ids],
            drawn(V, D),
            ("vocab", "feature"),
            [(ids, ("token",)), ("g", TOKENS)],
            attrs={"without_row_0": False},
        ),
        case(
            "lookup_backward",
            lambda t: t[ids] * (ids > 0)[:, None],
            drawn(V, D),
            ("bigram", "feature"),
            [(ids, ("token",)), ("g", TOKENS)],
            attrs={"without_row_0": True},
        ),
        *(
            case(
                "embedding_bag_backward",
                lambda t, how=how: bag(t, how),
                drawn(V, D),
                ("ngram", "feature"),
                [(ngrams, ("token", "ngram")), ("g", TOKENS)],
                attrs={"how": how},
            )
            for how in ("mean", "sum")
        ),
        case("positions_backward", lambda t: t[:L], drawn(V, D), ("vocab", "feature"), [("g", TOKENS)]),
        case(
            "linear_backward",
            lambda t: t @ weight.T,
            x,
            TOKENS,
            [("g", ("token", "hidden"))],
            params={"weight": (weight, ("out", "in"))},
        ),
        case(
            "linear_weight_backward",
            lambda t: x @ t.T,
            weight,
            ("out", "in"),
            [(x, TOKENS), ("g", ("token", "hidden"))],
        ),
        case("bias_backward", lambda t: x + t, drawn(D), ("feature",), [("g", TOKENS)]),
        case("rotate_backward", rotated, heads, HEADS, [("g", HEADS)], attrs={"base": 100.0}),
        case("transposed_mix", lambda t: y @ t, heads, HEADS, [(y, ATTENTION), ("g", HEADS)]),
        case("softmax_backward", lambda t: t.softmax(-1), scores, ATTENTION, [(y, ATTENTION), ("g", ATTENTION)]),
        case("relu_backward", F.relu, x, TOKENS, [(x, TOKENS), g]),
        case("gelu_backward", F.gelu, x, TOKENS, [(x, TOKENS), g]),
        case("gelu_tanh_backward", lambda t: F.gelu(t, approximate="tanh"), x, TOKENS, [(x, TOKENS), g]),
        case("silu_backward", F.silu, x, TOKENS, [(x, TOKENS), g]),
        case("tanh_backward", torch.tanh, x, TOKENS, [(x, TOKENS), g]),
        case("square_backward", torch.square, x, TOKENS, [(x, TOKENS), g]),
        case("swiglu_gate_backward", lambda t: F.silu(t) * x, gate, TOKENS, [(gate, TOKENS), (x, TOKENS), g]),
        case("swiglu_backward", lambda t: F.silu(gate) * t, x, TOKENS, [(gate, TOKENS), g]),
        *(
            case(
                "pool_backward",
                pooled(how),
                x,
                TOKENS,
                [(x, TOKENS), ("g", ("pooled",)), (mask, ("token", "key"))],
                attrs={"how": how},
            )
            for how in ("mean", "max", "first", "mean+max")
        ),
        case("pin_zero_backward", lambda t: torch.cat((torch.zeros(1), t)), drawn(1), ("class",), [("g", ("class",))]),
        case(
            "cross_entropy_backward",
            lambda t: -(q * t.log_softmax(-1)).sum(-1),
            z,
            ("token", "vocab"),
            [(z.softmax(-1), ("token", "vocab")), (q, ("token", "vocab")), ("g", ("token",))],
            gradient=drawn(L) * torch.tensor([1.0, 0.0, 1.0, 1.0]),
        ),
        case(
            "mean_loss_backward",
            lambda t: t[[0, 2, 3]].sum().reshape(1) / 3,
            drawn(L),
            ("token",),
            [("g", ("loss",))],
            attrs={"labels": labels},
        ),
    ]
    for op, norm in (
        ("layer_norm", lambda t, s: F.layer_norm(t, (D,), s, None, 1e-5)),
        ("rms_norm", lambda t, s: F.rms_norm(t, (D,), s, 1e-5)),
    ):
        params = {"weight": (w, ("feature",))}
        found.append(
            case(
                f"{op}_backward",
                lambda t, norm=norm: norm(t, w),
                x,
                TOKENS,
                [(x, TOKENS), g],
                params=params,
                attrs={"eps": 1e-5},
            )
        )
        found.append(
            case(
                f"{op}_weight_backward",
                lambda t, norm=norm: norm(x, t),
                w,
                ("feature",),
                [(x, TOKENS), ("g", TOKENS)],
                attrs={"eps": 1e-5},
            )
        )
    return found


if __name__ == "__main__":
    sys.stdout.write("[\n" + ",\n".join(json.dumps(one) for one in cases()) + "\n]\n")

"""Tests of `attention` and `fused_attention` against torch and each other, and of the tap."""

from __future__ import annotations

import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from torch import Tensor
from torch.nn import functional as F

import glassformer.nn.attention as MODULE
from glassformer.nn.attention import Mask, attention, causal_mask, fused_attention
from glassformer.nn.steps import report_to
from glassformer.utils.device import Computing, tuned


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
    """Torch's kernel, but for a single query."""
    with tuned(torch.device("cpu"), Computing(attention="fused")):
        return fused_attention(q, k, v, Mask(mask) if isinstance(mask, Tensor) else mask)


def unfused(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
    """The steps without torch's kernel, for a CPU and few keys."""
    with tuned(torch.device("cpu"), Computing(attention="explicit")):
        return fused_attention(q, k, v, Mask(mask) if isinstance(mask, Tensor) else mask)


def explicit(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
    return attention(q, k, v, mask.allowed if isinstance(mask, Mask) else mask)[0]


PATHS = [fused, unfused, explicit]


def qkv(b: int = 2, h: int = 3, q: int = 5, k: int = 7, e: int = 4, ev: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(b, h, q, e), torch.randn(b, h, k, e), torch.randn(b, h, k, ev)


MASKS = {
    "keys": torch.rand(2, 1, 1, 7, generator=torch.Generator().manual_seed(1)) < 0.5,
    "pairs": torch.rand(1, 1, 5, 7, generator=torch.Generator().manual_seed(2)) < 0.5,
}


@settings(deadline=None, max_examples=60)
@given(
    b=st.integers(1, 3),
    h=st.integers(1, 3),
    q=st.integers(1, 6),
    k=st.integers(1, 6),
    e=st.integers(1, 5),
    share=st.sampled_from([0, 0.2, 0.6, 1]),
    shape=st.sampled_from(["keys", "pairs", "all", "none"]),
    seed=st.integers(0, 999),
)
@pytest.mark.row("1b", "5.4")
def test_attention_equals_torch_and_is_zero_where_there_is_no_key(b, h, q, k, e, share, shape, seed) -> None:
    """Values and gradients; torch gives NaN, or the mean of the values, where there is nothing to see."""
    torch.manual_seed(seed)
    tensors = [t.requires_grad_() for t in qkv(b, h, q, k, e, e + 1)]
    size = {"keys": (b, 1, 1, k), "pairs": (1, 1, q, k), "all": (b, h, q, k), "none": ()}[shape]
    mask = torch.rand(size) < share if size else None
    seen = torch.ones(()) if mask is None else mask.any(-1, keepdim=True).expand(b, h, q, 1)
    exact = torch.where(seen > 0, F.scaled_dot_product_attention(*tensors, attn_mask=mask), 0.0)
    found = []
    for path in PATHS:
        out = path(*tensors, mask)
        torch.testing.assert_close(out, exact, atol=1e-6, rtol=0)
        found.append(torch.autograd.grad((out * torch.linspace(-1, 1, e + 1)).sum(), tensors))
    for gradients in zip(*found, strict=True):
        assert gradients[0].isfinite().all()
        for other in gradients[1:]:
            torch.testing.assert_close(gradients[0], other, atol=2e-5, rtol=1e-4)


@pytest.mark.row("1.1", "4.1")
def test_attention_without_parameters_with_printed_numbers() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    scores = torch.tensor([[1.0, 0.0, 1.0], [0.0, 4.0, 2.0], [1.0, 2.0, 2.0]])
    weights = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
    context, found = attention(x[None, None], x[None, None], x[None, None], scale=1.0)
    torch.testing.assert_close(found[0, 0], weights)
    torch.testing.assert_close(context[0, 0], weights @ x)


@for_each("path", PATHS)
@for_each("n_new", [1, 2, 7])
def test_attention_takes_causal_queries_as_the_last_positions(path, n_new: int) -> None:
    """With a cache there are fewer queries than keys; torch's is_causal would align them with the first."""
    q, k, v = qkv(q=7, k=7)
    whole = explicit(q, k, v, causal_mask(7, 7)[None, None])
    part = path(q[:, :, -n_new:], k, v, Mask.of(causal=(n_new, 7)))
    torch.testing.assert_close(part, whole[:, :, -n_new:], atol=1e-6, rtol=0)


def test_fused_attention_calls_the_kernel_as_the_process_says_and_never_for_a_step_of_decoding() -> None:
    m, x = MODULE.MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    with patch.object(MODULE.F, "scaled_dot_product_attention", return_value=torch.zeros(2, 3, 5, 6)) as kernel:
        assert (fused(*qkv()) == 0).all()
        assert kernel.call_count == 1
        assert (explicit(*qkv()) != 0).all()
        with report_to(lambda module, name, tensor, *_: tensor):
            m(x)
        fused(*qkv(q=1))
        unfused(*qkv(q=16, k=256))
        attention(*qkv(q=16, k=256))
        assert kernel.call_count == 1
        fused_attention(*qkv())
        assert kernel.call_count == 2


@for_each("path", PATHS)
def test_attention_in_bf16_is_near_fp32(path) -> None:
    q, k, v = qkv(q=32, k=64, e=16, ev=16)
    mask = torch.rand(2, 1, 1, 64) < 0.7
    exact = explicit(q, k, v, mask)
    rough = path(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask)
    assert rough.dtype == torch.bfloat16
    # bf16 keeps 8 bits: a relative 2^-8 of values of size one, a few times over.
    torch.testing.assert_close(rough.float(), exact, atol=0.03, rtol=0.03)


@pytest.mark.row("3.2")
@for_each("path", PATHS)
def test_attention_with_enormous_scores_returns_the_value_of_one_key(path) -> None:
    q, k, v = (t * 1e3 for t in qkv())
    best = v.gather(2, (q @ k.mT).masked_fill(~MASKS["keys"], -math.inf).argmax(-1)[..., None].expand(2, 3, 5, 6))
    out = path(q, k, v, MASKS["keys"])
    torch.testing.assert_close(out, best * MASKS["keys"].any(-1, keepdim=True))


# Tapping


@for_each("site", ["q", "k", "v", "products", "scores", "mask", "weights", "context"])
def test_attention_uses_what_the_tap_returns(site: str) -> None:
    """The rest is computed from it, as by hand; nothing is written in place."""
    given = dict(zip("qkv", qkv(), strict=True)) | {"mask": MASKS["pairs"]}
    kept = {name: tensor.clone() for name, tensor in given.items()}
    other = torch.rand(1, 1, 5, 7) < 0.5 if site == "mask" else None

    def tap(name: str, tensor: Tensor, *_: object, **__: object) -> Tensor:
        if name == site:
            return tensor * 0.5 + 1 if other is None else other
        return tensor

    context, _ = attention(*given.values(), tap=tap)
    changed = {name: tap(name, tensor) for name, tensor in given.items()}
    products = tap("products", changed["q"] @ changed["k"].mT)
    scores = tap("scores", products / 2).masked_fill(~changed["mask"], -math.inf)
    weights = tap("weights", scores.softmax(-1).nan_to_num(0.0))
    torch.testing.assert_close(context, tap("context", weights @ changed["v"]), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(context, explicit(*given.values()), atol=1e-4)
    assert all(torch.equal(given[name], kept[name]) for name in given)

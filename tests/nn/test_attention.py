"""Attention against torch and the words of the paper, alone and in heads; masks, and the cache of keys and values."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from torch import Tensor
from torch.nn import functional as F

import glassformer.nn.attention as MODULE
from glassformer.nn.attention import KVCache, Mask, MultiHeadAttention, attention, causal_mask, fused_attention
from glassformer.nn.steps import report_to
from glassformer.utils.device import Computing, tuned


def computed(how: Any, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
    with tuned(torch.device("cpu"), Computing(attention=how)):
        return fused_attention(q, k, v, Mask(mask) if isinstance(mask, Tensor) else mask)


fused = partial(computed, "fused")
"""Torch's kernel, but for a single query."""
unfused = partial(computed, "explicit")
"""The steps without torch's kernel, for a CPU and few keys."""


def explicit(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
    return attention(q, k, v, mask.allowed if isinstance(mask, Mask) else mask)[0]


PATHS = [fused, unfused, explicit]


def qkv(b: int = 2, h: int = 3, q: int = 5, k: int = 7, e: int = 4, ev: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(b, h, q, e), torch.randn(b, h, k, e), torch.randn(b, h, k, ev)


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
    m, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
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
    mask = torch.rand(2, 1, 1, 7, generator=torch.Generator().manual_seed(1)) < 0.5
    best = v.gather(2, (q @ k.mT).masked_fill(~mask, -math.inf).argmax(-1)[..., None].expand(2, 3, 5, 6))
    torch.testing.assert_close(path(q, k, v, mask), best * mask.any(-1, keepdim=True))


def heads_by_hand(x: Tensor, memory: Tensor, m: MultiHeadAttention) -> Tensor:
    """Section 3.2.2 to the letter: one head after another."""
    contexts = []
    for h in range(m.n_heads):
        rows = slice(h * m.d_head, (h + 1) * m.d_head)
        q, k, v = (
            F.linear(y, p.weight[rows], None if p.bias is None else p.bias[rows])
            for y, p in ((x, m.q_proj), (memory, m.k_proj), (memory, m.v_proj))
        )
        contexts.append((q @ k.mT / math.sqrt(m.d_head)).softmax(-1) @ v)
    return m.o_proj(torch.cat(contexts, dim=-1))


@pytest.mark.row("1.2", "1a", "3.4", "3b", "3c", "4.2", "4a", "4b", "5a")
@for_each("d_head", [1, 3, 4, 8, 16])
@for_each("n_heads", [1, 2, 4])
@for_each("bias", [True, False])
def test_narrow_and_wide_heads(d_head: int, n_heads: int, bias: bool) -> None:
    """Each is scaled by its own width; keys and values are those of the memory."""
    m = MultiHeadAttention(8, n_heads, d_head, bias=bias)
    randomise(m)
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 6, 8)
    torch.testing.assert_close(m(x), heads_by_hand(x, x, m), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(m(x, memory), heads_by_hand(x, memory, m), atol=1e-5, rtol=1e-5)
    assert sum(p.numel() for p in m.parameters()) == 4 * 8 * n_heads * d_head + bias * (3 * n_heads * d_head + 8)


@pytest.mark.row("2.3")
def test_without_the_last_layer_the_values_of_a_head_reach_its_own_features_alone() -> None:
    m, x = MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    for last, reached in ((m.o_proj.weight.detach().clone(), [True] * 8), (torch.eye(8), [True] * 4 + [False] * 4)):
        with torch.no_grad():
            m.o_proj.weight.copy_(last)
            before = m(x)
            m.v_proj.weight[:4] += 1  # of the first head
            assert ((m(x) - before).abs() > 1e-6).any(dim=1)[0].tolist() == reached


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of n_heads 3"):
        MultiHeadAttention(8, 3)


def test_cross_attention_reads_its_memory_once() -> None:
    m, cache = MultiHeadAttention(8, 2).eval(), KVCache()
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    first = m(x, memory, cache=cache)
    assert cache.length == 5
    assert torch.equal(m(x, torch.full_like(memory, torch.nan), cache=cache), first)


@pytest.mark.row("5.5", "5b")
def test_causal_mask_takes_the_queries_as_the_last_positions() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(causal_mask(7, 7), torch.ones(7, 7).tril().bool()) and causal_mask(1, 5).all()


def test_mask_of_is_causal_and_padded() -> None:
    real = torch.arange(6) < torch.tensor([[6], [2]])
    past, padding = torch.ones(6, 6).tril().bool()[None, None], real[:, None, None, :]
    everything = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    for causal, expected in (((6, 6), past & padding), (None, padding & everything)):
        mask = Mask.of(causal=causal, padding_mask=real)
        assert mask is not None and torch.equal(mask.allowed.expand(2, 1, 6, 6), expected)
    mask = Mask.of(causal=(6, 6))
    assert mask is not None and torch.equal(mask.allowed.expand(1, 1, 6, 6), past)
    assert Mask.of() is None and Mask.of(causal=(1, 5)) is None, "one query sees all"


@for_each("chunks", [[1] * 1000, [MODULE.FIRST_CAPACITY, 1, 1], [200, 1, 300], [3, 40, 2]])
def test_what_is_appended_is_read_back_whole(chunks: list[int]) -> None:
    """In buffers that grow by doubling, and not at every step."""
    cache, k, v, sizes = KVCache(), torch.randn(2, 3, sum(chunks), 4), torch.randn(2, 3, sum(chunks), 4), set[int]()
    for keys, values in zip(k.split(chunks, dim=2), v.split(chunks, dim=2), strict=True):
        found = cache.append(keys, values)
        assert torch.equal(found[0], k[:, :, : cache.length]) and torch.equal(found[1], v[:, :, : cache.length])
        sizes.add(found[0].untyped_storage().nbytes() // (2 * 3 * 4 * 4))
    assert torch.equal(cache.keys, k) and torch.equal(cache.values, v)
    assert len(sizes) <= 7 and max(sizes) < 2100

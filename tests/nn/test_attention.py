"""Attention against torch's, explicit against fused, and the law of masks."""

from __future__ import annotations

import math
import sys
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.copying import copy_attention, randomise
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn import CAUSAL, KVCache, MultiHeadAttention, attention, observe_attention
from glassformer.nn.positions import Rotation

MODULE = sys.modules["glassformer.nn.attention"]  # the name in the package is the function


def fused(*args: object, **kwargs: object) -> Tensor:
    with patch.object(MODULE, "_fused_pays", return_value=True):
        return attention(*args, **kwargs)


def explicit(*args: object, **kwargs: object) -> Tensor:
    with patch.object(MODULE, "_fused_pays", return_value=False):
        return attention(*args, **kwargs)


def qkv(
    b: int = 2, h: int = 3, q: int = 5, k: int = 7, e: int = 4, ev: int = 6
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(b, h, q, e), torch.randn(b, h, k, e), torch.randn(b, h, k, ev)


MASKS = {
    "none": None,
    "keys": torch.rand(2, 1, 1, 7, generator=torch.Generator().manual_seed(1)) < 0.5,
    "pairs": torch.rand(1, 1, 5, 7, generator=torch.Generator().manual_seed(2)) < 0.5,
    "heads": torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(3)) < 0.5,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("path", [fused, explicit])
def test_parity_with_torch(path, mask: Tensor | None) -> None:
    q, k, v = qkv()
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    if mask is not None:  # torch gives NaN, or the mean of the values, where there is nothing to see
        theirs = torch.where(mask.any(-1, keepdim=True), theirs, 0.0)
    torch.testing.assert_close(path(q, k, v, mask), theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("path", [fused, explicit])
def test_causal_parity_with_torch(path) -> None:
    q, k, v = qkv(q=7, k=7)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(path(q, k, v, CAUSAL), theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("path", [fused, explicit])
@pytest.mark.parametrize("n_new", [1, 2, 7])
def test_causal_queries_are_the_last_positions(path, n_new: int) -> None:
    """With a cache there are fewer queries than keys; torch's is_causal would align them with the first."""
    q, k, v = qkv(q=7, k=7)
    whole = explicit(q, k, v, CAUSAL)
    part = path(q[:, :, -n_new:], k, v, CAUSAL)
    torch.testing.assert_close(part, whole[:, :, -n_new:], atol=1e-6, rtol=0)


def test_one_branch_decides_between_two_paths() -> None:
    with patch.object(
        MODULE.F, "scaled_dot_product_attention", return_value=torch.zeros(2, 3, 5, 6)
    ) as kernel:
        assert (fused(*qkv()) == 0).all()
        assert kernel.call_count == 1
        assert (explicit(*qkv()) != 0).all()
        with observe_attention(lambda name, tensor: None):
            fused(*qkv())
        fused(*qkv(), return_weights=True)
        assert kernel.call_count == 1


@settings(deadline=None, max_examples=40)
@given(
    b=st.integers(1, 3), h=st.integers(1, 3), q=st.integers(1, 6), k=st.integers(1, 6), e=st.integers(1, 5),
    share=st.floats(0, 1), shape=st.sampled_from(["keys", "pairs", "all"]), seed=st.integers(0, 999),
)  # fmt: skip
def test_explicit_equals_fused(b, h, q, k, e, share, shape, seed) -> None:
    torch.manual_seed(seed)
    tensors = [t.requires_grad_() for t in qkv(b, h, q, k, e, e)]
    size = {"keys": (b, 1, 1, k), "pairs": (1, 1, q, k), "all": (b, h, q, k)}[shape]
    mask = torch.rand(size) < share
    results = []
    for path in (explicit, fused):
        out = path(*tensors, mask)
        results.append((out, *torch.autograd.grad((out * torch.linspace(-1, 1, e)).sum(), tensors)))
    for ours, theirs in zip(*results, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("path", [fused, explicit])
@pytest.mark.parametrize("blind", ["one row", "all"])
def test_nothing_to_attend_to_gives_zeros(path, blind: str) -> None:
    q, k, v = (t.requires_grad_() for t in qkv())
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    rows = (slice(None),) if blind == "all" else (1, slice(None), 3)
    mask[rows] = False
    out = path(q, k, v, mask)
    is_blind = ~mask.any(-1, keepdim=True).expand(2, 3, 5, 6)
    assert (out[is_blind] == 0).all()
    assert (out[~is_blind] != 0).all()
    out.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_weights_sum_to_one_or_to_nothing() -> None:
    mask = MASKS["heads"].clone()
    mask[0, 0, 0] = False
    context, weights = attention(*qkv(), mask, return_weights=True)
    assert weights.shape == (2, 3, 5, 7)
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())
    torch.manual_seed(1)
    q, k, v = qkv()
    context, weights = attention(q, k, v, mask, return_weights=True)
    torch.testing.assert_close(weights @ v, context)


@pytest.mark.parametrize("path", [fused, explicit])
def test_bf16_stays_near_fp32(path) -> None:
    q, k, v = qkv(q=32, k=64, e=16, ev=16)
    mask = torch.rand(2, 1, 1, 64) < 0.7
    exact = explicit(q, k, v, mask)
    rough = path(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask)
    assert rough.dtype == torch.bfloat16
    # bf16 keeps 8 bits: a relative 2^-8 of values of size one, a few times over.
    torch.testing.assert_close(rough.float(), exact, atol=0.03, rtol=0.03)


@pytest.mark.parametrize("path", [fused, explicit])
def test_enormous_scores_do_not_overflow(path) -> None:
    q, k, v = (t * 1e3 for t in qkv())
    out = path(q, k, v, MASKS["keys"])
    assert out.isfinite().all()
    # Scores this far apart choose one key: the answer is that key's value.
    scores = (q @ k.mT).masked_fill(~MASKS["keys"], -math.inf)
    best = v.gather(2, scores.argmax(-1)[..., None].expand(2, 3, 5, 6))
    torch.testing.assert_close(out, best * MASKS["keys"].any(-1, keepdim=True))


@pytest.mark.parametrize("path", [fused, explicit])
def test_scale_is_one_over_root_d_head_unless_given(path) -> None:
    q, k, v = qkv(e=4)
    by_hand = (q @ k.mT / 2).softmax(-1) @ v
    torch.testing.assert_close(path(q, k, v), by_hand, atol=1e-6, rtol=0)
    torch.testing.assert_close(path(q, k, v, scale=1.0), (q @ k.mT).softmax(-1) @ v, atol=1e-6, rtol=0)


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1000, 4)
    v = torch.ones(1, 1, 1000, 1)
    outs = torch.cat([explicit(q, k, v, dropout=0.5) for _ in range(50)])
    assert outs.std() > 0
    assert abs(outs.mean() - 1) < 0.02
    assert not torch.equal(fused(q, k, v, dropout=0.5), fused(q, k, v, dropout=0.5))


# Watching


def test_an_observer_sees_every_step_and_changes_nothing() -> None:
    q, k, v = qkv()
    seen: list[tuple[str, Tensor]] = []
    with observe_attention(lambda name, tensor: seen.append((name, tensor.clone()))):
        watched = fused(q, k, v, MASKS["pairs"])
    assert [name for name, _ in seen] == ["scores", "weights", "context"]
    torch.testing.assert_close(watched, fused(q, k, v, MASKS["pairs"]), atol=1e-6, rtol=0)
    scores, weights, context = (tensor for _, tensor in seen)
    torch.testing.assert_close(scores, q @ k.mT / 2)
    torch.testing.assert_close(weights @ v, context)
    assert torch.equal(context, watched)
    n = len(seen)
    attention(q, k, v)
    assert len(seen) == n


def test_observing_ends_with_the_block_even_when_it_fails() -> None:
    seen: list[str] = []
    with pytest.raises(KeyError), observe_attention(lambda name, _: seen.append(name)):
        raise KeyError
    attention(*qkv())
    assert seen == []


# Heads


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


@pytest.mark.parametrize("d_head", [1, 3, 4, 8, 16])
@pytest.mark.parametrize("n_heads", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_narrow_and_wide_heads(d_head: int, n_heads: int, bias: bool) -> None:
    m = MultiHeadAttention(8, n_heads, d_head, bias=bias)
    randomise(m)
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 6, 8)
    torch.testing.assert_close(m(x), heads_by_hand(x, x, m), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(m(x, memory), heads_by_hand(x, memory, m), atol=1e-5, rtol=1e-5)
    assert sum(p.numel() for p in m.parameters()) == 4 * 8 * n_heads * d_head + bias * (
        3 * n_heads * d_head + 8
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", ["nothing", "padding", "future", "both"])
def test_parity_with_torch_multihead_attention(bias: bool, masked: str) -> None:
    theirs = randomise(nn.MultiheadAttention(12, 3, bias=bias, batch_first=True))
    ours = MultiHeadAttention(12, 3, bias=bias).eval()
    copy_attention(ours, theirs)
    x = torch.randn(2, 6, 12)
    real = torch.arange(6) < torch.tensor([6, 4])[:, None]
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    padding = real if masked in ("padding", "both") else torch.ones_like(real)
    future = past if masked in ("future", "both") else torch.ones_like(past)
    mask = padding[:, None, None, :] & future[None, None]
    # Theirs mean the opposite: True = may not attend.
    expected, weights = theirs(
        x, x, x, key_padding_mask=~padding, attn_mask=~future, average_attn_weights=False
    )
    torch.testing.assert_close(ours(x, mask=mask), expected, atol=1e-5, rtol=1e-5)
    seen = {}
    with observe_attention(seen.__setitem__):
        ours(x, mask=mask)
    torch.testing.assert_close(seen["weights"], weights, atol=1e-6, rtol=0)


def test_cross_attention_parity_with_torch() -> None:
    theirs = randomise(nn.MultiheadAttention(12, 3, batch_first=True))
    ours = MultiHeadAttention(12, 3).eval()
    copy_attention(ours, theirs)
    x, memory = torch.randn(2, 4, 12), torch.randn(2, 7, 12)
    real = torch.arange(7) < torch.tensor([3, 7])[:, None]
    expected, _ = theirs(x, memory, memory, key_padding_mask=~real)
    torch.testing.assert_close(ours(x, memory, real[:, None, None, :]), expected, atol=1e-5, rtol=1e-5)


def test_qk_norm_leaves_the_size_of_a_query_without_meaning() -> None:
    m = MultiHeadAttention(8, 2, qk_norm=True, bias=False)
    x = torch.randn(1, 5, 8)
    before = m(x)
    with torch.no_grad():
        m.q_proj.weight.mul_(7.0)
        m.k_proj.weight.mul_(0.3)
    torch.testing.assert_close(m(x), before, atol=1e-4, rtol=1e-4)


def test_attention_dropout_only_in_training() -> None:
    m = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 5, 8)
    assert not torch.equal(m(x), m(x))
    m.eval()
    assert torch.equal(m(x), m(x))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of n_heads 3"):
        MultiHeadAttention(8, 3)


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("chunks", [[1] * 7, [3, 1, 3], [7]])
def test_a_cache_changes_nothing(rotary: bool, chunks: list[int]) -> None:
    m = MultiHeadAttention(8, 2).eval()
    x = torch.randn(2, 7, 8)

    def rotation(start: int, end: int) -> Rotation | None:
        return Rotation.at(torch.arange(start, end), 4) if rotary else None

    whole = m(x, mask=CAUSAL, rotation=rotation(0, 7))
    cache, parts, start = KVCache(), [], 0
    for n in chunks:
        part = x[:, start : start + n]
        parts.append(m(part, mask=CAUSAL, rotation=rotation(start, start + n), cache=cache))
        start += n
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-6, rtol=1e-5)


def test_rotary_positions_are_relative() -> None:
    """Queries and keys are turned alike: the same text further on in a book is attended to in the same way."""
    m, x = MultiHeadAttention(8, 2).eval(), torch.randn(2, 6, 8)
    here, further, reversed_ = (
        m(x, rotation=Rotation.at(positions, 4))
        for positions in (torch.arange(6), torch.arange(6) + 50, torch.arange(6).flip(0))
    )
    torch.testing.assert_close(here, further, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(here, m(x), atol=1e-3)
    assert not torch.allclose(here, reversed_, atol=1e-3)


def test_cross_attention_reads_its_memory_once() -> None:
    m, cache = MultiHeadAttention(8, 2).eval(), KVCache()
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    first = m(x, memory, cache=cache)
    assert cache.length == 5
    assert torch.equal(m(x, torch.full_like(memory, torch.nan), cache=cache), first)

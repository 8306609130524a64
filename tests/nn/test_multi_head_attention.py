"""Attention in heads: against torch's module and the paper's words; masks, rotation and cache."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.copying import copy_attention, randomise
from tests.helpers.for_each import for_each
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.attention import FIRST_CAPACITY, KVCache, Mask, MultiHeadAttention
from glassformer.nn.embeddings import Rotation
from glassformer.nn.steps import report_to


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
    m = randomise(MultiHeadAttention(8, n_heads, d_head, bias=bias))
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


@for_each("bias", [True, False])
@for_each("masked", ["nothing", "padding", "future", "both"])
def test_parity_with_torch_multihead_attention(bias: bool, masked: str) -> None:
    theirs = randomise(nn.MultiheadAttention(12, 3, bias=bias, batch_first=True))
    ours = MultiHeadAttention(12, 3, bias=bias).eval()
    copy_attention(ours, theirs)
    x = torch.randn(2, 6, 12)
    real = torch.arange(6) < torch.tensor([6, 4])[:, None]
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    padding = real if masked in ("padding", "both") else torch.ones_like(real)
    future = past if masked in ("future", "both") else torch.ones_like(past)
    mask = Mask(padding[:, None, None, :] & future[None, None])
    # Theirs mean the opposite: True = may not attend.
    expected, weights = theirs(x, x, x, key_padding_mask=~padding, attn_mask=~future, average_attn_weights=False)
    torch.testing.assert_close(ours(x, mask=mask), expected, atol=1e-5, rtol=1e-5)
    seen = {}
    with report_to(lambda _, name, tensor, *__: seen.setdefault(name, tensor)):
        ours(x, mask=mask)
    torch.testing.assert_close(seen["weights"], weights, atol=1e-6, rtol=0)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of n_heads 3"):
        MultiHeadAttention(8, 3)


def test_rotary_positions_are_relative() -> None:
    """Queries and keys are turned alike: the same text further on in a book is attended to in the same way."""
    m, x = MultiHeadAttention(8, 2).eval(), torch.randn(2, 6, 8)
    here, further, reversed_ = (
        m(x, rotation=Rotation.at(positions[None], 4))
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


@for_each("chunks", [[1] * 1000, [FIRST_CAPACITY, 1, 1], [200, 1, 300], [3, 40, 2]])
def test_what_is_appended_is_read_back_whole(chunks: list[int]) -> None:
    """In buffers that grow by doubling, and not at every step."""
    cache, k, v, sizes = KVCache(), torch.randn(2, 3, sum(chunks), 4), torch.randn(2, 3, sum(chunks), 4), set[int]()
    for keys, values in zip(k.split(chunks, dim=2), v.split(chunks, dim=2), strict=True):
        found = cache.append(keys, values)
        assert torch.equal(found[0], k[:, :, : cache.length]) and torch.equal(found[1], v[:, :, : cache.length])
        sizes.add(found[0].untyped_storage().nbytes() // (2 * 3 * 4 * 4))
    assert torch.equal(cache.keys, k) and torch.equal(cache.values, v)
    assert len(sizes) <= 7 and max(sizes) < 2100


def test_rows_are_kept_dropped_and_doubled() -> None:
    cache, k = KVCache(), torch.randn(3, 1, 5, 2)
    cache.append(k, -k)
    rows = torch.tensor([2, 0, 0, 1])
    cache.select(rows)
    assert torch.equal(cache.keys, k[rows])
    assert torch.equal(cache.values, -k[rows])
    # Rows that were one are two from here on.
    new = torch.randn(4, 1, 1, 2)
    assert torch.equal(cache.append(new, new)[0], torch.cat([k[rows], new], dim=2))

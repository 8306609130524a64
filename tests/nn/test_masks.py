"""The law of masks: True = may attend, one value for all that must hold, said in two ways."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from glassformer.nn import Mask, causal_mask


def test_causal_mask_is_the_lower_triangle() -> None:
    assert causal_mask(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_the_queries_are_the_last_positions() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(causal_mask(2, 7), causal_mask(7, 7)[-2:])
    assert causal_mask(1, 5).all()


def test_padding_mask_is_the_opposite_of_torchs() -> None:
    real = torch.tensor([[True, True, False], [True, False, False]])
    mask = Mask.of(padding_mask=real)
    assert mask is not None
    assert mask.allowed.shape == (2, 1, 1, 3)
    assert torch.equal(mask.allowed[:, 0, 0], real)
    assert Mask.of(padding_mask=None) is None


def test_a_query_sees_its_own_segment() -> None:
    mask = Mask.of(segments=torch.tensor([[0, 0, 1]]))
    assert mask is not None
    assert mask.allowed[0, 0].tolist() == [[True, True, False], [True, True, False], [False, False, True]]


@settings(deadline=None, max_examples=40)
@given(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_one_value_says_causal_and_padded_and_packed(causal, padded, packed, seed) -> None:
    """Every pair, one by one, against the three sentences that define it."""
    torch.manual_seed(seed)
    real, segments = torch.rand(2, 6) < 0.7, torch.randint(3, (2, 6)).sort(1).values
    mask = Mask.of(
        causal=(6, 6) if causal else None,
        padding_mask=real if padded else None,
        segments=segments if packed else None,
    )
    assert (mask is None) == (not (causal or padded or packed))
    if mask is None:
        return
    allowed = mask.allowed.expand(2, 1, 6, 6)
    for b in range(2):
        for q in range(6):
            for k in range(6):
                may = (not causal or k <= q) and (not padded or bool(real[b, k]))
                may = may and (not packed or bool(segments[b, k] == segments[b, q]))
                assert bool(allowed[b, 0, q, k]) == may


def test_one_query_that_sees_everything_needs_no_mask() -> None:
    assert Mask.of(causal=(1, 5)) is None


@pytest.mark.parametrize("n_queries", [2, 4])
@pytest.mark.parametrize("more", ["nothing", "padding", "segments"])
def test_the_kernel_is_told_once_and_exactly(n_queries: int, more: str) -> None:
    """Never a mask and is_causal together; is_causal only where torch means by it what we mean."""
    if more == "segments" and n_queries < 4:
        return  # packed texts are read whole
    real, segments = torch.tensor([[True, True, False, True]]), torch.tensor([[0, 0, 1, 1]])
    mask = Mask.of(
        causal=(n_queries, 4),
        padding_mask=real if more == "padding" else None,
        segments=segments if more == "segments" else None,
    )
    assert mask is not None
    told = mask.for_kernel()
    assert told.keys() == ({"is_causal"} if more == "nothing" and n_queries == 4 else {"attn_mask"})
    q, k, v = torch.randn(1, 2, n_queries, 8), *torch.randn(2, 1, 2, 4, 8).unbind()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.allowed)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v, **told), expected)

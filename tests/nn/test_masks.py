"""Tests of masks: True = may attend, in the forms of the explicit path and of torch's kernel."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from torch.nn import functional as F

from glassformer.nn import Mask, causal_mask


def test_causal_mask_is_the_lower_triangle() -> None:
    assert causal_mask(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_causal_mask_takes_the_queries_as_the_last_positions() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(causal_mask(2, 7), causal_mask(7, 7)[-2:])
    assert causal_mask(1, 5).all()


def test_padding_mask_is_the_inverse_of_torchs() -> None:
    real = torch.tensor([[True, True, False], [True, False, False]])
    mask = Mask.of(padding_mask=real)
    assert mask is not None
    assert mask.allowed.shape == (2, 1, 1, 3)
    assert torch.equal(mask.allowed[:, 0, 0], real)
    assert Mask.of(padding_mask=None) is None


@settings(deadline=None, max_examples=40)
@given(st.booleans(), st.booleans(), st.integers(0, 99))
def test_mask_of_is_causal_and_padded(causal, padded, seed) -> None:
    """Every pair, one by one, against the two sentences that define it."""
    torch.manual_seed(seed)
    real = torch.rand(2, 6) < 0.7
    mask = Mask.of(causal=(6, 6) if causal else None, padding_mask=real if padded else None)
    assert (mask is None) == (not (causal or padded))
    if mask is None:
        return
    allowed = mask.allowed.expand(2, 1, 6, 6)
    for b in range(2):
        for q in range(6):
            for k in range(6):
                may = (not causal or k <= q) and (not padded or bool(real[b, k]))
                assert bool(allowed[b, 0, q, k]) == may


def test_mask_of_one_query_is_none() -> None:
    assert Mask.of(causal=(1, 5)) is None


@for_each("n_queries", [2, 4])
@for_each("more", ["nothing", "padding"])
def test_sdpa_kwargs_are_one_exact_argument(n_queries: int, more: str) -> None:
    """Never a mask and is_causal together; is_causal only where torch means by it what we mean."""
    real = torch.tensor([[True, True, False, True]])
    mask = Mask.of(causal=(n_queries, 4), padding_mask=real if more == "padding" else None)
    assert mask is not None
    kwargs = mask.sdpa_kwargs()
    assert kwargs.keys() == ({"is_causal"} if more == "nothing" and n_queries == 4 else {"attn_mask"})
    q, k, v = torch.randn(1, 2, n_queries, 8), *torch.randn(2, 1, 2, 4, 8).unbind()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.allowed)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v, **kwargs), expected)

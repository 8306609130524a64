"""Tests of masks: True = may attend, the conjunction of what is asked for."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.nn.attention import Mask, causal_mask


def test_causal_mask_takes_the_queries_as_the_last_positions() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(causal_mask(2, 7), causal_mask(7, 7)[-2:])
    assert causal_mask(1, 5).all()


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

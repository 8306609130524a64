"""The two masks: True = may attend."""

from __future__ import annotations

import torch

from glassformer.nn import causal_mask, padding_to_attention_mask


def test_causal_mask_is_the_lower_triangle() -> None:
    assert causal_mask(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_the_queries_are_the_last_positions() -> None:
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(causal_mask(2, 7), causal_mask(7, 7)[-2:])
    assert causal_mask(1, 5).all()


def test_padding_mask_is_the_opposite_of_torchs() -> None:
    real = torch.tensor([[True, True, False], [True, False, False]])
    mask = padding_to_attention_mask(real)
    assert mask is not None
    assert mask.shape == (2, 1, 1, 3)
    assert torch.equal(mask[:, 0, 0], real)
    assert padding_to_attention_mask(None) is None

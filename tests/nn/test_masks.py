"""Tests of masks: True = may attend, the conjunction of what is asked for."""

from __future__ import annotations

import pytest
import torch

from glassformer.nn.attention import Mask, causal_mask


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

"""Dropout: the share it names, the mean it keeps, the same in forward and backward."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.for_each import for_each

from glassformer.nn.dropout import Dropout


def dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    return Dropout(p)(x)


@for_each("p", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_the_share_dropped_and_the_mean_kept(p: float) -> None:
    out = dropout(torch.ones(1000, 1001), p)
    share = (out == 0).float().mean().item()
    assert share == pytest.approx(max(p, 1 / 256), abs=1 / 256)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert len(out.unique()) == 2


def test_neighbours_are_dropped_independently() -> None:
    kept = (dropout(torch.ones(1_000_000), 0.5) != 0).float()
    for lag in (1, 2, 7, 8, 64):
        together = (kept[:-lag] * kept[lag:]).mean().item()
        assert together == pytest.approx(0.25, abs=0.005)


def test_the_gradient_passes_where_the_value_did() -> None:
    x = torch.ones(100, requires_grad=True)
    out = dropout(x, 0.5)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_the_seed_decides() -> None:
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(dropout(torch.ones(100), 0.5))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_shape_and_dtype_stay_and_nothing_to_drop_is_the_very_tensor() -> None:
    for x in (torch.ones(0, 3), torch.ones(3, 1, 5), torch.ones(9, dtype=torch.bfloat16)):
        assert (dropout(x, 0.5).shape, dropout(x, 0.5).dtype) == (x.shape, x.dtype)
        assert dropout(x, 0.0) is x and Dropout(0.9).eval()(x) is x


def test_a_share_that_is_none_is_refused() -> None:
    for p in (-0.1, 1.0, 2.0):
        with pytest.raises(ValueError, match="dropout"):
            Dropout(p)

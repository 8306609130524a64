"""Learning-rate schedules against their formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.training.schedule import lr_factor

NAMES = ["constant", "linear", "cosine", "inverse-sqrt"]


def test_inverse_sqrt_matches_the_paper() -> None:
    """d^-0.5 · min(step^-0.5, step · warmup^-1.5) (paper, 5.3, equation 3), scaled to a peak of 1."""
    warmup = 4000
    peak = min(warmup**-0.5, warmup * warmup**-1.5)
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        formula = min(step**-0.5, step * warmup**-1.5) / peak
        assert lr_factor("inverse-sqrt", warmup, step, 0.5) == pytest.approx(formula)


def test_cosine_and_linear_decay_to_zero() -> None:
    assert lr_factor("cosine", 0.0, 1, 0.5) == pytest.approx(0.5)
    assert lr_factor("cosine", 0.0, 9, 1.0) == pytest.approx(0.0)
    assert lr_factor("linear", 0.0, 9, 0.75) == pytest.approx(0.25)
    assert lr_factor("cosine", 0.2, 9, 0.6) == pytest.approx(0.5 * (1 + math.cos(math.pi / 2)))


@given(st.sampled_from(NAMES), st.floats(0, 0.9), st.integers(1, 10**6), st.floats(0, 1))
def test_lr_factor_lies_between_zero_and_one(name: str, warmup: float, step: int, progress: float) -> None:
    assert 0.0 <= lr_factor(name, warmup, step, progress) <= 1.0


@given(st.floats(0.01, 0.5), st.floats(0, 1))
def test_warmup_is_linear(warmup: float, share: float) -> None:
    factor = lr_factor("constant", warmup, 1, share * warmup)
    assert factor == pytest.approx(max(share, 1e-3), rel=1e-6)

"""Learning-rate schedules against their formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.training.optimizer import lr_factor

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


@for_each("name", ["linear", "cosine"])
@for_each(("warmup", "n_steps"), [(100, 200), (1, 10), (50, 60), (99, 100), (2.5, 10)])
def test_decay_begins_where_a_warmup_in_steps_ends(name: str, warmup: float, n_steps: int) -> None:
    """The peak is the full rate, and the decay is that of a run of n_steps - warmup without warmup."""
    factors = [lr_factor(name, warmup, step, (step - 1) / n_steps) for step in range(1, n_steps + 1)]
    assert max(factors) == pytest.approx(1.0)
    for step, factor in enumerate(factors, start=1):
        after = step - 1 - warmup
        share = after / (n_steps - warmup)
        decay = 1 - share if name == "linear" else 0.5 * (1 + math.cos(math.pi * share))
        assert factor == pytest.approx(min(1.0, step / warmup) if after <= 0 else decay, abs=1e-9)


@for_each("name", ["linear", "cosine"])
def test_a_warmup_is_the_same_in_steps_and_as_a_share(name: str) -> None:
    for step in range(42, 401):
        in_steps, as_share = (lr_factor(name, w, step, (step - 1) / 400) for w in (40, 0.1))
        assert in_steps == pytest.approx(as_share), step


@for_each("warmup", [10, 11, 1000])
def test_a_warmup_longer_than_the_run_has_no_decay(warmup: int) -> None:
    factors = [lr_factor("cosine", warmup, step, (step - 1) / 10) for step in range(1, 11)]
    assert factors == pytest.approx([step / warmup for step in range(1, 11)])


@given(st.sampled_from(NAMES), st.integers(1, 1000), st.integers(1, 10**6), st.floats(0, 1))
def test_lr_factor_lies_between_zero_and_one_after_a_warmup_in_steps(
    name: str, warmup: int, step: int, progress: float
) -> None:
    assert 0.0 <= lr_factor(name, warmup, step, progress) <= 1.0


@given(st.sampled_from(NAMES), st.floats(0, 0.9), st.integers(1, 10**6), st.floats(0, 1))
def test_lr_factor_lies_between_zero_and_one(name: str, warmup: float, step: int, progress: float) -> None:
    assert 0.0 <= lr_factor(name, warmup, step, progress) <= 1.0


@given(st.floats(0.01, 0.5), st.floats(0, 1))
def test_warmup_is_linear(warmup: float, share: float) -> None:
    factor = lr_factor("constant", warmup, 1, share * warmup)
    assert factor == pytest.approx(max(share, 1e-3), rel=1e-6)

"""The intervals against values worked out elsewhere, and the properties that make them usable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.helpers.for_each import for_each

from glassformer.evaluate.significance import percentile_interval, resampled_sums, wilson_interval


@for_each(("right", "n"), [(0, 10), (10, 10), (7, 10), (22031, 25000), (1, 1)])
def test_wilson_agrees_with_scipy(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(right, n) == pytest.approx([expected.low, expected.high], abs=1e-9)


def test_wilson_keeps_a_width_at_the_edges_and_never_leaves_the_unit_interval() -> None:
    low, high = wilson_interval(20, 20)
    assert high == 1.0 and 0.8 < low < 0.9
    assert wilson_interval(0, 0) == [0.0, 1.0]


def test_resampled_sums_are_reproducible_and_centred_on_the_sum() -> None:
    statistics = np.random.default_rng(0).normal(size=(400, 3))
    sums = resampled_sums(statistics, 500)
    assert np.array_equal(sums, resampled_sums(statistics, 500))
    spread = statistics.std(axis=0) * np.sqrt(400)
    assert np.all(np.abs(sums.mean(axis=0) - statistics.sum(axis=0)) < 4 * spread / np.sqrt(500))
    assert np.allclose(sums.std(axis=0), spread, rtol=0.15)


def test_columns_side_by_side_are_drawn_on_the_same_examples() -> None:
    column = np.arange(50.0)[:, None]
    sums = resampled_sums(np.hstack([column, 2 * column]), 40)
    assert np.allclose(sums[:, 1], 2 * sums[:, 0])


def test_percentile_interval_holds_the_middle_95_percent() -> None:
    assert percentile_interval(np.arange(1001)) == [25.0, 975.0]

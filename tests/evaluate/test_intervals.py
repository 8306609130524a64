"""The intervals against values worked out elsewhere, and the properties that make them usable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from tests.helpers.for_each import for_each

from glassformer.evaluate.scores import label_counts
from glassformer.evaluate.scoring import (
    bootstrap_interval,
    f1,
    interval,
    percentile_interval,
    ratio,
    resampled_sums,
    wilson_interval,
)


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


@for_each(("n", "wrong"), [(n, wrong) for n in (20, 50, 200) for wrong in (0.01, 0.05, 0.3)])
def test_the_interval_of_a_share_holds_it_as_often_as_it_says(n: int, wrong: float) -> None:
    """By all numbers of wrong texts that there can be, with their probabilities."""
    held = [low <= 1 - wrong <= high for low, high in (wilson_interval(n - k, n) for k in range(n + 1))]
    assert binom.pmf(np.arange(n + 1), n, wrong) @ np.array(held) >= 0.92


@for_each(("n", "wrong"), [(n, wrong) for n in (20, 50, 200) for wrong in (0.01, 0.05, 0.3)])
def test_the_interval_of_f1_holds_it_and_is_not_wide(n: int, wrong: float) -> None:
    """Four labels a text; wrong decisions come together, for the rate of each text is drawn."""
    rng = np.random.default_rng(0)

    def drawn(n_texts: int) -> np.ndarray:
        rates = rng.beta(4 * wrong, 4 * (1 - wrong), size=(n_texts, 1))
        truth, is_wrong = rng.random((n_texts, 4)) < 0.4, rng.random((n_texts, 4)) < rates
        return label_counts(truth, truth ^ is_wrong)

    true = f1(drawn(200_000).sum(axis=0))
    found, widths = [], []
    for counts in (drawn(n) for _ in range(400)):
        low, high = interval(f1, counts)
        found.append(low <= true <= high)
        ends = wilson_interval(counts[:, 0].sum(), counts.sum())
        widths.append((high - low) / np.diff([2 * end / (1 + end) for end in ends])[0])
    assert np.mean(found) > 0.89 and np.mean(widths) < 1.5  # of 2,000 draws it is 0.92 and more


@for_each(("n", "wrong"), [(n, wrong) for n in (20, 50) for wrong in (0.01, 0.05, 0.3)])
def test_the_interval_of_an_error_holds_it(n: int, wrong: float) -> None:
    rng = np.random.default_rng(0)

    def drawn(n_texts: int) -> np.ndarray:
        far = rng.random(n_texts) < wrong
        return np.where(far, rng.uniform(1, 4, n_texts), np.abs(rng.normal(0, 0.1, n_texts)))

    true, found = drawn(1_000_000).mean(), []
    for errors in (drawn(n) for _ in range(100)):
        counts = np.stack([errors, np.ones(n)], axis=1)
        low, high = bootstrap_interval(counts, ratio, np.array([[0.0, 1.0], [4.0, 1.0]]), 200)
        found.append(low <= true <= high)
    assert np.mean(found) >= 0.92

"""The intervals against values worked out elsewhere, and the properties that make them usable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.helpers.for_each import for_each

from glassformer.evaluate.scores import label_counts
from glassformer.evaluate.scoring import (
    f1,
    interval,
    paired_test,
    percentile_interval,
    resampled_sums,
    share,
    wilson_interval,
)


@for_each(("right", "n"), [(0, 10), (10, 10), (7, 10), (22031, 25000), (1, 1)])
def test_wilson_agrees_with_scipy(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(right, n) == pytest.approx([expected.low, expected.high], abs=1e-9)
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


@for_each(("b", "c"), [(0, 0), (5, 5), (0, 5), (1, 9), (40, 12)])
def test_of_shares_it_is_mcnemars_exact_test(b: int, c: int) -> None:
    """`b` examples that the first alone gets right, and `c` that the second does, of 100."""
    first, second = (
        np.repeat([[x, 1.0], [y, 1.0], [1.0, 1.0]], [b, c, 100 - b - c], axis=0) for x, y in ((1, 0), (0, 1))
    )
    test = paired_test(first, second, share, n_draws=4000)
    expected = binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert test["p_value"] == pytest.approx(expected, abs=0.02) and test["n"] == 100
    assert test["difference"] == pytest.approx((b - c) / 100)
    assert test["ci95"][0] <= test["difference"] <= test["ci95"][1]


def test_no_number_of_draws_claims_certainty() -> None:
    right, wrong = np.ones((60, 2)), np.tile([0.0, 1.0], (60, 1))
    assert paired_test(right, wrong, share, n_draws=999)["p_value"] == 1 / 1000

"""The tests against values worked out elsewhere, and the properties that make them usable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.helpers.for_each import for_each

from glassformer.evaluate.scoring import paired_test, ratio, share


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


def test_it_sees_a_small_difference_on_the_same_blocks() -> None:
    """Blocks differ much more from each other than two models do on each of them."""
    rng = np.random.default_rng(0)
    hard, chars = rng.uniform(100, 500, 300), np.full(300, 200.0)
    first = np.stack([hard, chars], axis=1)
    second = np.stack([hard + rng.normal(3, 5, 300), chars], axis=1)

    test = paired_test(first, second, ratio)
    assert test["difference"] == pytest.approx(-0.015, abs=0.004) and test["p_value"] < 0.005
    assert test["ci95"][0] < test["difference"] < test["ci95"][1] < 0
    same = paired_test(first, first, ratio, n_draws=50)
    assert same["difference"] == 0 and same["p_value"] == 1.0


def test_the_p_value_is_that_of_a_t_test_where_both_apply() -> None:
    """The mean of normal differences: known, and the test comes near it."""
    difference = np.random.default_rng(3).normal(0.12, 1.0, 400)
    rows = np.stack([difference, np.ones(400)], axis=1)
    none = np.stack([np.zeros(400), np.ones(400)], axis=1)
    test = paired_test(rows, none, ratio, n_draws=4000)
    t = difference.mean() / (difference.std(ddof=1) / 20)
    from scipy.stats import norm

    assert test["p_value"] == pytest.approx(2 * norm.sf(abs(t)), abs=0.02)

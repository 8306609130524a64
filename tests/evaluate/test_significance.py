"""The tests against values worked out elsewhere, and the properties that make them usable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.helpers.for_each import for_each

from glassformer.evaluate.scoring import ratio
from glassformer.evaluate.significance import (
    bootstrap_p_value,
    mcnemar,
    paired_bootstrap,
    paired_share_interval,
    paired_shares,
)


def test_bootstrap_p_value_is_small_only_for_a_difference_beyond_the_spread() -> None:
    draws = np.random.default_rng(1).normal(loc=5.0, scale=1.0, size=999)
    assert bootstrap_p_value(5.0, draws) == pytest.approx(1 / 1000)
    assert bootstrap_p_value(0.0, draws) == 1.0


@for_each(("b", "c"), [(0, 0), (5, 5), (1, 9), (40, 12), (900, 1000)])
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int) -> None:
    expected = binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert mcnemar(b, c) == pytest.approx(expected)


def test_paired_share_interval_holds_the_difference_and_shrinks_with_n() -> None:
    low, high = paired_share_interval(60, 40, 1000)
    assert low < 0.02 < high
    wider = paired_share_interval(6, 4, 100)
    assert wider[1] - wider[0] > high - low


def test_paired_shares_counts_what_one_alone_gets_right() -> None:
    test = paired_shares(np.array([True, True, False]), np.array([True, False, True]))
    assert (test["difference"], test["n"], test["p_value"]) == (0.0, 3, 1.0)
    test = paired_shares(np.ones(20, bool), np.zeros(20, bool))
    assert test["difference"] == 1.0 and test["p_value"] == pytest.approx(2 / 2**20)


def test_the_paired_bootstrap_sees_a_small_difference_on_the_same_blocks() -> None:
    """Blocks differ much more from each other than two models do on each of them."""
    rng = np.random.default_rng(0)
    hard, chars = rng.uniform(100, 500, 300), np.full(300, 200.0)
    first = np.stack([hard, chars], axis=1)
    second = np.stack([hard + rng.normal(3, 5, 300), chars], axis=1)

    test = paired_bootstrap(first, second, ratio)
    assert test["difference"] == pytest.approx(-0.015, abs=0.004) and test["p_value"] < 0.005
    assert test["ci95"][0] < test["difference"] < test["ci95"][1] < 0
    same = paired_bootstrap(first, first, ratio, n_bootstrap=50)
    assert same["difference"] == 0 and same["p_value"] == 1.0


def test_the_bootstrap_p_value_is_that_of_a_t_test_where_both_apply() -> None:
    """The mean of normal differences: known, and the bootstrap comes near it."""
    difference = np.random.default_rng(3).normal(0.12, 1.0, 400)
    rows = np.stack([difference, np.ones(400)], axis=1)
    none = np.stack([np.zeros(400), np.ones(400)], axis=1)
    test = paired_bootstrap(rows, none, ratio, n_bootstrap=4000)
    t = difference.mean() / (difference.std(ddof=1) / 20)
    from scipy.stats import norm

    assert test["p_value"] == pytest.approx(2 * norm.sf(abs(t)), abs=0.02)

"""Classification scores worked out by hand, on the degenerate cases, and for what JSON can hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from glassformer.evaluate.scores import calibration_error, class_scores

NAMES = ["neg", "pos"]


def test_two_classes_by_hand() -> None:
    labels = [0, 0, 0, 1, 1]
    pos = np.array([0.1, 0.2, 0.6, 0.9, 0.4])
    result = class_scores(labels, np.stack([1 - pos, pos], axis=1), NAMES)
    assert result["n"] == 5
    assert result["accuracy"] == pytest.approx(3 / 5)
    assert result["confusion"] == [[2, 1], [1, 1]]
    f1_neg, f1_pos = 2 / 3, 1 / 2
    assert result["macro_f1"] == pytest.approx((f1_neg + f1_pos) / 2)
    assert result["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.9, 0.4]).mean())
    assert result["per_class"][1] == {
        "label": "pos",
        "precision": pytest.approx(1 / 2),
        "recall": pytest.approx(1 / 2),
        "f1": pytest.approx(1 / 2),
        "support": 2,
    }
    low, high = result["ci95"]
    assert 0 < low < 0.6 < high < 1


def test_a_class_nobody_mentions_does_not_lower_macro_f1_and_the_result_is_plain_json() -> None:
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], dtype=np.float32)
    result = class_scores(np.array([0, 1]), probabilities, ["a", "b", "unseen"])
    assert result["macro_f1"] == 1.0 and result["per_class"][2]["support"] == 0
    assert json.loads(json.dumps(result)) == result


def test_a_certain_mistake_costs_much_but_is_finite() -> None:
    result = class_scores([0], np.array([[0.0, 1.0]]), NAMES)
    assert np.isfinite(result["log_loss"]) and result["log_loss"] > 100


def test_calibration_of_a_calibrated_and_of_an_overconfident_classifier() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, size=20_000)
    right = rng.uniform(size=20_000) < confidence
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    assert calibration_error((~right).astype(int), probabilities) < 0.02
    always_sure = np.tile([1.0, 0.0], (1000, 1))
    assert calibration_error(np.array([0, 1] * 500), always_sure) == pytest.approx(0.5)

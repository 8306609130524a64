"""One table of metrics: which way is better, and how a value is written."""

from __future__ import annotations

import math

import pytest
from tests.helpers.for_each import for_each

from glassformer.evaluate.metrics import METRICS, Metric, metric, score
from glassformer.tasks import TASKS
from glassformer.utils.formatting import number


def test_which_way_is_better() -> None:
    lower = {
        "ece",
        "ece_calibrated",
        "log_loss",
        "loss",
        "perplexity",
        "nats_per_token",
        "nats_per_char",
        "bits_per_char",
        "bits_per_byte",
    }
    assert {name for name, known in METRICS.items() if not known.higher_is_better} == lower
    assert metric("bleu").better(31.0, 30.0) and metric("loss").better(0.1, 0.2)


def test_on_the_training_split_it_is_the_same_metric() -> None:
    known = metric("train_loss")
    assert (known.name, known.title, known.higher_is_better) == ("train_loss", "Loss on train", False)


def test_a_task_says_its_own_and_an_unknown_one_is_a_score() -> None:
    own = Metric("hamming", "Hamming distance", "labels", higher_is_better=False)
    assert metric("hamming", [own]) is own
    assert metric("train_hamming", [own]).higher_is_better is False
    assert metric("hit_rate").title == "Hit rate" and metric("hit_rate").higher_is_better


def test_intervals_are_written_in_the_metrics_own_unit() -> None:
    assert metric("accuracy").between([0.877, 0.885]) == "87.7–88.5%"
    assert metric("bleu").between([30.12, 31.0]) == "30.1–31.0"
    assert metric("bleu").between(None) == ""
    assert Metric("r2", "R²").between([-0.12, -0.03]) == "-0.120 to -0.03"
    assert [number(x) for x in (999.94, 999.96)] == ["999.9", "1,000"]


@for_each("name", TASKS)
def test_every_task_is_validated_and_quoted_by_a_known_metric(name: str) -> None:
    task_report = TASKS[name].report
    known = METRICS.keys() | {metric.name for metric in task_report.metrics}
    assert {TASKS[name].metric, task_report.headline, *task_report.table_metrics} <= known


def test_a_uniform_guess_over_256_bytes_costs_eight_bits() -> None:
    n = 1000
    result = score(n * math.log(256), n_tokens=n, n_chars=n, n_bytes=n)
    assert result["bits_per_char"] == pytest.approx(8.0) == result["bits_per_byte"]
    assert result["perplexity"] == pytest.approx(256.0)
    assert result["nats_per_token"] == pytest.approx(math.log(256)) == result["nats_per_char"]
    assert result["n"] == n


def test_tokens_characters_and_bytes_divide_the_same_sum() -> None:
    result = score(600.0, n_tokens=100, n_chars=300, n_bytes=400)
    assert result["nats_per_token"] == 6.0
    assert result["nats_per_char"] == 2.0
    assert result["bits_per_char"] == pytest.approx(2.0 / math.log(2))
    assert result["bits_per_byte"] == pytest.approx(1.5 / math.log(2))


def test_a_hopeless_model_has_no_perplexity_not_an_error() -> None:
    assert score(1e6, 1, 1, 1)["perplexity"] is None

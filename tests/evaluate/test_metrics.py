"""One table of metrics: which way is better, and how a value is written."""

from __future__ import annotations

from tests.helpers.for_each import for_each

from glassformer.evaluate.metrics import METRICS, Metric, metric
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

"""Losses weighted by class: each class counts alike in training, and validation is as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import small
from torch.nn import functional as F

from glassformer.cli.main import main
from glassformer.data.splits import Split, TextData
from glassformer.tasks import Task
from glassformer.tasks.encoder import Classify


def task_and_batch(weight: str) -> tuple[Task, torch.nn.Module, object]:
    run = small("classify")
    texts, labels = ["a b", "b c", "c d", "d e", "e f"], ["x", "x", "x", "y", "z"]
    data = TextData(Split(texts, labels, "t"), Split(texts, labels, "t"), None)
    config = replace(run.config, train=replace(run.config.train, class_weight=weight))
    task = Classify.from_data(config, data)
    torch.manual_seed(0)
    corpus = task.encode(data.train, training=True)
    return task, task.build_model(), task.make_batch(corpus, torch.arange(5).numpy())


@for_each("smoothing", [0.0, 0.1])
def test_each_class_counts_alike(smoothing: float) -> None:
    task, model, batch = task_and_batch("balanced")
    assert task.class_weights is not None
    assert task.class_weights.tolist() == pytest.approx([5 / 9, 5 / 3, 5 / 3])
    weights = task.class_weights[batch.labels]  # pyright: ignore
    assert weights.mean().item() == pytest.approx(1)
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0  # pyright: ignore
    model.train()
    each = F.cross_entropy(
        task.logits(model, batch),  # pyright: ignore
        batch.labels,  # pyright: ignore
        reduction="none",
        label_smoothing=smoothing,
    )
    assert task.loss_sum(model, batch, smoothing).item() == pytest.approx((each * weights).sum().item(), rel=1e-5)  # pyright: ignore
    model.eval()
    assert task.loss_sum(model, batch, smoothing).item() == pytest.approx(each.sum().item(), rel=1e-5)  # pyright: ignore


def test_without_the_setting_there_are_no_weights() -> None:
    assert task_and_batch("none")[0].class_weights is None


def test_the_setting_is_of_classes_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for task in ("multilabel", "translate", "lm"):
        assert main(["train", task, "--class-weight", "balanced", "--out", str(tmp_path / task)]) == 2
        assert "has no use for --class-weight" in capfd.readouterr().err

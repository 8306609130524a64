"""Report, card and plot name the checkpoint whose weights are kept: training's own choice, not one made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import SMALL, write_table

import glassformer
from glassformer.report.run_record import load_run_record
from glassformer.runs.records import StepMetrics, from_json
from glassformer.tasks.encoder import Classify


def log(run: Path, rows: list[StepMetrics]) -> None:
    run.mkdir()
    (run / "config.toml").write_text('task = "classify"\n', encoding="utf-8")
    (run / "metrics.jsonl").write_text("".join(row.line() for row in rows), encoding="utf-8")


def row(step: int, accuracy: float, loss: float, best: bool = False) -> StepMetrics:
    return StepMetrics(step, loss=1.0, valid={"loss": loss, "accuracy": accuracy}, best=best)


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([row(50, 1.0, 0.3, True), row(100, 1.0, 0.2, True), row(150, 1.0, 0.1, True)], 150),
        ([row(50, 1.0, 0.3, True), row(100, 1.0, 0.2, True), row(150, 1.0, 0.25)], 100),
        ([row(50, 0.5, 0.3, True), row(100, 0.9, 0.9, True), row(150, 0.9, 0.95)], 100),
        ([StepMetrics(1, loss=1.0)], None),
        ([row(50, float("nan"), 0.1)], None),
    ],
)
def test_the_validation_that_was_kept(tmp_path: Path, rows: list[StepMetrics], kept: int | None) -> None:
    log(tmp_path / "run", rows)
    best = load_run_record(tmp_path / "run").best_validation()
    assert (best.step if best else None) == kept


def test_only_the_best_are_marked_in_the_log() -> None:
    lines = [json.loads(each.line()) for each in (row(1, 0.5, 0.1, True), row(2, 0.5, 0.2), StepMetrics(3))]
    assert [line.get("best") for line in lines] == [True, None, None]
    assert from_json(StepMetrics, lines[0], "log").best


def test_equal_validations_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accuracy is 1 at each validation and the loss falls until the third, which is kept."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    losses = iter([3.0, 2.0, 1.0, 1.5, 1.0])

    def validate(*_: Any) -> dict[str, float]:
        return {"loss": next(losses), "accuracy": 1.0}

    monkeypatch.setattr(Classify, "validate", validate)
    settings = SMALL | {
        "batch_size": 12,
        "epochs": 5,
        "validate_min_steps": 1,
        "snapshots": True,
        "train_file": write_table(tmp_path),
    }
    run = glassformer.train("classify", out=tmp_path / "run", **settings)
    steps = [each.step for each in load_run_record(run.path).validations]
    assert len(steps) == 5
    assert f"Kept: the weights of step {steps[2]} " in (run.path / "report.md").read_text("utf-8")

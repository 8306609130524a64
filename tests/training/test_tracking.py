"""What is logged is written as event files of TensorBoard too, and what follows a training does not change it."""

from __future__ import annotations

import json
import random
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.small_runs import SMALL, write_table

import glassformer
from glassformer.errors import UsageError
from glassformer.runs.records import StepMetrics
from glassformer.training.tracking import check_tensorboard, values_of

STEPS = SMALL | {"steps": 9, "save_every": 4, "validate_every": 100, "threads": 1}


class Stopped(Exception):
    """Ends a training as a kill does, with the log as it is."""


def stop(report: StepMetrics) -> None:
    if report.step == 6:
        raise Stopped


class Writer:
    """A stand-in for TensorBoard's writer, which keeps what it is given."""

    made: list[Writer]

    def __init__(self, folder: str, purge_step: int | None) -> None:
        self.folder, self.purge_step, self.closed = folder, purge_step, False
        self.sent: dict[int, dict[str, float]] = {}
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.sent.setdefault(step, {})[name] = value

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    package = ModuleType("tensorboard")
    package.__spec__ = ModuleSpec("tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard", package)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setattr(Writer, "made", [], raising=False)
    return Writer.made


def test_event_files_hold_what_is_logged_and_a_resumed_run_continues_them(
    writers: list[Writer], tmp_path: Path
) -> None:
    settings = STEPS | {"train_file": write_table(tmp_path), "tensorboard": True}
    with pytest.raises(Stopped):
        glassformer.train("classify", out=tmp_path / "run", on_step=stop, **settings)
    glassformer.resume(tmp_path / "run")
    begun, resumed = writers
    assert begun.folder == resumed.folder == str(tmp_path / "run" / "tensorboard") and begun.closed and resumed.closed
    assert (begun.purge_step, resumed.purge_step) == (None, 5), "steps since the checkpoint are done again"
    assert [*begun.sent] == [*range(1, 7)] and [*resumed.sent] == [*range(5, 10)]
    sent = begun.sent | resumed.sent
    for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        assert sent[row["step"]]["loss"] == row["loss"]
        assert sent[row["step"]].keys() >= {"lr", "grad_norm"} | {f"valid/{name}" for name in row.get("valid", {})}


def test_a_missing_package_is_named() -> None:
    with pytest.raises(UsageError, match="needs the package tensorboard") as caught:
        check_tensorboard(True)
    assert 'pip install "glassformer[tensorboard]"' in caught.value.hint
    check_tensorboard(False)


def test_values_are_finite_numbers_by_name() -> None:
    report = StepMetrics(3, loss=1.0, lr=float("nan"), valid={"accuracy": 0.5, "f1": float("inf")}, best=True)
    assert values_of(report) == {"loss": 1.0, "valid/accuracy": 0.5}


def test_who_follows_a_training_draws_random_numbers_of_its_own(tmp_path: Path) -> None:
    settings = STEPS | {"train_file": write_table(tmp_path), "dropout": 0.5}

    def follow(report: Any) -> None:
        torch.manual_seed(report.step)
        random.seed(0)
        np.random.seed(0)
        torch.rand(7)

    weights = []
    for name, on_step in (("alone", None), ("followed", follow)):
        glassformer.train("classify", out=tmp_path / name, on_step=on_step, **settings)
        weights.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]

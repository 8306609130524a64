"""A training that `control.json` pauses, steps and stops."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.small_runs import SMALL, Killed, kill_at, write_table

import glassformer
from glassformer.api import resume, train
from glassformer.cli.main import main
from glassformer.errors import CheckpointError, Interrupted, UsageError
from glassformer.runs.folder import CONTINUE, PAUSE, Control, ControlFile, RunFolder
from glassformer.runs.model_folder import TENSORS, WEIGHTS, read_tensors
from glassformer.runs.records import StepMetrics
from glassformer.training import loop, trainer

STEPS = 40
SETTINGS: dict[str, Any] = {"threads": 1, "deterministic": True, "epochs": None, "seed": 3, "validate_every": 1000}


class Clock:
    """Stands for the time of a training: each wait of a pause takes a hundred seconds, and one who watches answers.

    Args:
        folder: the run. answers: what is asked at the second wait of each pause, in turn.
    """

    def __init__(self, folder: RunFolder, answers: list[Control | Callable[[], None]]) -> None:
        self.folder, self.answers, self.seen, self.now = folder, answers, list[int](), 0.0

    def perf_counter(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 100.0
        last = self.folder.read_metrics()[-1]
        assert last.paused
        if last.step not in self.seen:
            self.seen.append(last.step)  # it stays paused
            return
        answer = self.answers.pop(0)
        answer() if callable(answer) else ControlFile(self.folder.control).write(answer)


def trained(out: Path, on_step: Callable[[StepMetrics], None], **more: Any) -> None:
    settings = SMALL | SETTINGS | {"train_file": str(write_table(out.parent)), "steps": STEPS} | more
    train("classify", out=out, on_step=on_step, **settings)


def run(out: Path, answers: list[Any], **more: Any) -> tuple[list[StepMetrics], Clock]:
    """Train, asking for a pause after the third step, and drawing random numbers then, as who follows it may."""
    folder, reports = RunFolder(out), list[StepMetrics]()
    clock = Clock(folder, [*answers])

    def on_step(report: StepMetrics) -> None:
        reports.append(report)
        if answers:
            torch.manual_seed(report.step)
            random.seed(0)
            np.random.seed(0)
        if report.step == 3 and answers:
            ControlFile(folder.control).write(PAUSE)

    with pytest.MonkeyPatch.context() as patch:
        for module in (loop, trainer):
            patch.setattr(module, "time", clock)
        trained(out, on_step, **more)
    return reports, clock


def test_pauses_and_random_numbers_of_who_follows_change_no_bit(tmp_path: Path) -> None:
    """And the time of a pause is not counted."""
    plain, _ = run(tmp_path / "plain", [], dropout=0.5)
    paused, clock = run(tmp_path / "paused", [Control(until=7), CONTINUE], dropout=0.5)
    assert clock.seen == [4, 7], "after the step in which it was asked, and three single steps later"
    assert [row.step for row in RunFolder(tmp_path / "paused").read_metrics() if row.paused] == [4, 7]
    assert [report.loss for report in paused] == [report.loss for report in plain]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("plain", "paused")]
    assert weights[0] == weights[1]
    assert clock.now > 400 and paused[-1].seconds < 10
    assert not (tmp_path / "paused" / "control.json").exists(), "removed at the end"


def test_a_stop_ends_a_training_as_ctrl_c_and_finish_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best weights so far are scored, and it trains no more."""
    cut, stopped = RunFolder(tmp_path / "cut"), RunFolder(tmp_path / "run")

    def train_until_step_4(folder: RunFolder, stop: Callable[[], None]) -> None:
        def on_step(report: StepMetrics) -> None:
            if report.step == 3:
                stop()

        trained(folder.path, on_step, validate_every=0.1, validate_min_steps=2)

    with pytest.raises(Interrupted) as caught:
        train_until_step_4(cut, lambda: signal.raise_signal(signal.SIGINT))
    assert "--finish" in caught.value.hint
    with pytest.raises(CheckpointError, match="holds no trained model") as refused:
        glassformer.load(cut.path)
    assert "--finish" in refused.value.hint
    ControlFile(cut.control).write(PAUSE)  # left by a training that was killed
    assert main(["train", "--resume", str(cut.path), "--finish"]) == 0
    sentence = "stopped at step 4, before its budget was used"
    assert sentence in capsys.readouterr().err
    checkpoint = max(cut.checkpoints.glob("step-*")) / TENSORS
    best = {n: t for n, t in read_tensors(checkpoint.read_bytes(), checkpoint).items() if n.startswith("best:")}
    kept = read_tensors((cut.model / WEIGHTS).read_bytes(), cut.model)
    assert {f"best:{name}" for name in kept} == best.keys()
    assert all(tensor.equal(best[f"best:{name}"]) for name, tensor in kept.items())
    train_until_step_4(stopped, lambda: ControlFile(stopped.control).write(Control(stop=True)))
    assert not cut.control.exists() and not stopped.control.exists(), "removed at the end"
    for file in ("model/model.safetensors", "predictions.jsonl", "evaluation.json"):
        assert (stopped.path / file).read_bytes() == (cut.path / file).read_bytes(), file
    assert sentence in stopped.report.read_text("utf-8")
    capsys.readouterr()
    resume(stopped.path)
    assert f"{stopped.path} trains no more" in capsys.readouterr().err and len(stopped.read_metrics()) == 4


def test_a_stop_and_a_signal_end_a_pause_too(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    _, clock = run(folder.path, [Control(stop=True)])
    assert clock.seen == [4] and folder.finished and len(folder.read_metrics()) == 4
    with pytest.raises(Interrupted) as stopped:
        run(tmp_path / "other", [lambda: signal.raise_signal(signal.SIGTERM)])
    assert stopped.value.exit_code == 128 + signal.SIGTERM and RunFolder(tmp_path / "other").checkpoints.is_dir()


def test_a_pause_that_comes_with_the_last_step_ends_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")

    def on_step(report: StepMetrics) -> None:
        if report.step == STEPS - 1:
            ControlFile(folder.control).write(PAUSE)

    trained(folder.path, on_step)
    assert folder.finished and torch.get_num_threads() >= 1


def test_there_must_be_a_step_of_one_run_to_finish_from(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trained(tmp_path / "run", kill_at(1), steps=9)
    with pytest.raises(CheckpointError, match="has no step to finish from"):
        resume(tmp_path / "run", finish=True)
    assert main(["train", "classify", "--finish", "--train-file", str(tmp_path / "table.csv")]) == 2
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "seeds.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match="this folder holds several"):
        resume(tmp_path / "several", finish=True)

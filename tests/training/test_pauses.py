"""A training that `control.json` pauses, steps and stops."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
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
from glassformer.runs.folder import GO_ON, PAUSE, Control, ControlFile, RunFolder
from glassformer.runs.model_folder import TENSORS, WEIGHTS, read_tensors
from glassformer.runs.records import StepMetrics
from glassformer.training import loop, trainer

STEPS = 40
SETTINGS: dict[str, Any] = {"threads": 1, "deterministic": True, "epochs": None, "seed": 3, "validate_every": 1000}


class Watcher(threading.Thread):
    """Reads the log of a training, as one who watches does, and asks for the next thing when a pause is logged there.

    Args:
        folder: the run. answers: what to ask at each pause, in turn.
    """

    def __init__(self, folder: RunFolder, answers: list[Control | Callable[[], None]]) -> None:
        super().__init__(daemon=True)
        self.folder, self.answers, self.seen = folder, answers, list[int]()

    def paused_after(self) -> int | None:
        lines = self.folder.metrics.read_bytes().splitlines() if self.folder.metrics.exists() else []
        last = json.loads(lines[-1]) if lines else {}
        return last["step"] if last.get("paused") else None

    def run(self) -> None:
        deadline = time.monotonic() + 60
        for answer in self.answers:
            while (step := self.paused_after()) is None or step in self.seen:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.005)
            self.seen.append(step)
            time.sleep(2 * trainer.PAUSE_SECONDS)  # it stays paused
            assert self.paused_after() == step
            answer() if callable(answer) else ControlFile(self.folder.control).write(answer)


def run(out: Path, table: Path, answers: list[Any], **more: Any) -> tuple[list[StepMetrics], Watcher]:
    """Train, asking for a pause after the third step; what comes then is the watcher's."""
    folder, reports = RunFolder(out), list[StepMetrics]()
    watcher = Watcher(folder, answers)

    def on_step(report: StepMetrics) -> None:
        reports.append(report)
        if answers:  # who follows a training may draw random numbers
            torch.manual_seed(report.step)
            random.seed(0)
            np.random.seed(0)
        if report.step == 3 and answers:
            ControlFile(folder.control).write(PAUSE)

    watcher.start()
    try:
        train("classify", out=out, on_step=on_step, train_file=str(table), steps=STEPS, **SMALL, **SETTINGS, **more)
    finally:
        watcher.join(60)
    return reports, watcher


def test_pauses_and_random_numbers_of_who_follows_change_no_bit(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    plain, _ = run(tmp_path / "plain", table, [], dropout=0.5)
    paused, watcher = run(tmp_path / "paused", table, [Control(until=7), GO_ON], dropout=0.5)
    assert watcher.seen == [4, 7], "after the step in which it was asked, and three single steps later"
    assert [report.step for report in paused if report.paused] == [4, 7]
    assert [report.loss for report in paused] == [report.loss for report in plain]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("plain", "paused")]
    assert weights[0] == weights[1]
    assert not (tmp_path / "paused" / "control.json").exists(), "removed at the end"


class Clock:
    """A clock on which each look takes a millisecond, and each wait of a pause a hundred seconds."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 100.0
        time.sleep(seconds)


def test_the_time_of_a_pause_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(trainer, "time", clock)
    reports, watcher = run(tmp_path / "run", write_table(tmp_path), [GO_ON])
    assert watcher.seen == [4] and clock.now > 200
    assert reports[-1].seconds < 10
    logged = RunFolder(tmp_path / "run").read_metrics()
    assert [row.paused for row in logged[:5]] == [False, False, False, True, False]


def test_a_stop_ends_a_training_as_ctrl_c_and_finish_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best weights so far are scored, and it trains no more."""
    table, cut, stopped = write_table(tmp_path), RunFolder(tmp_path / "cut"), RunFolder(tmp_path / "run")

    def train_until_step_4(folder: RunFolder, stop: Callable[[], None]) -> None:
        settings = SMALL | SETTINGS | {"validate_every": 0.1, "validate_min_steps": 2}

        def on_step(report: StepMetrics) -> None:
            if report.step == 3:
                stop()

        train("classify", out=folder.path, on_step=on_step, train_file=str(table), steps=STEPS, **settings)

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
    folder, table = RunFolder(tmp_path / "run"), write_table(tmp_path)
    _, watcher = run(folder.path, table, [Control(stop=True)])
    assert watcher.seen == [4] and folder.finished and len(folder.read_metrics()) == 4
    with pytest.raises(Interrupted) as stopped:
        run(tmp_path / "other", table, [lambda: signal.raise_signal(signal.SIGTERM)])
    assert stopped.value.exit_code == 128 + signal.SIGTERM and RunFolder(tmp_path / "other").checkpoints.is_dir()


def test_a_pause_that_comes_with_the_last_step_ends_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")

    def on_step(report: StepMetrics) -> None:
        if report.step == STEPS - 1:
            ControlFile(folder.control).write(PAUSE)

    table = write_table(tmp_path)
    train("classify", out=folder.path, on_step=on_step, train_file=str(table), steps=STEPS, **SMALL, **SETTINGS)
    assert folder.finished and torch.get_num_threads() >= 1


def test_there_must_be_a_step_of_one_run_to_finish_from(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    with pytest.raises(Killed):
        train("classify", out=tmp_path / "run", on_step=kill_at(1), train_file=str(table), steps=9, **SMALL, **SETTINGS)
    with pytest.raises(CheckpointError, match="has no step to finish from"):
        resume(tmp_path / "run", finish=True)
    assert main(["train", "classify", "--finish", "--train-file", str(table)]) == 2
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "seeds.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match="this folder holds several"):
        resume(tmp_path / "several", finish=True)

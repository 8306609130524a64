"""A run that was stopped is finished where it is: `train --resume RUN --finish`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import SMALL, write_table

import glassformer
from glassformer.cli.main import main
from glassformer.errors import CheckpointError, Interrupted, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import TENSORS, WEIGHTS, read_tensors


@pytest.fixture
def stopped(tmp_path: Path) -> RunFolder:
    """A run that was stopped at step 12 of 40, after validations."""

    def stop(report: Any) -> None:
        if report.step == 12:
            os.kill(os.getpid(), signal.SIGINT)

    settings = SMALL | {"batch_size": 8, "steps": 40, "epochs": None, "validate_every": 0.2, "validate_min_steps": 1}
    with pytest.raises(Interrupted) as caught:
        glassformer.train("classify", train_file=write_table(tmp_path), out=tmp_path / "run", on_step=stop, **settings)
    assert "--finish" in caught.value.hint
    return RunFolder(tmp_path / "run")


def test_its_best_weights_are_scored_and_it_trains_no_more(
    stopped: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = max(stopped.checkpoints.glob("step-*")) / TENSORS
    best = {n: t for n, t in read_tensors(checkpoint.read_bytes(), checkpoint).items() if n.startswith("best:")}
    log = stopped.metrics.read_bytes()
    with pytest.raises(CheckpointError, match="holds no trained model") as caught:
        glassformer.load(stopped.path)
    assert "--finish" in caught.value.hint
    assert main(["train", "--resume", str(stopped.path), "--finish"]) == 0
    sentence = f"stopped at step {checkpoint.parent.name[-2:]}, before its budget was used"
    assert sentence in capsys.readouterr().err and sentence in stopped.report.read_text("utf-8")
    weights = (stopped.model / WEIGHTS).read_bytes()
    kept = read_tensors(weights, stopped.model)
    assert kept.keys() == {name.removeprefix("best:") for name in best}
    assert all(tensor.equal(best[f"best:{name}"]) for name, tensor in kept.items())
    assert stopped.finished and glassformer.load(stopped.path).predict("good word1")["label"]
    glassformer.resume(stopped.path)
    assert (stopped.model / WEIGHTS).read_bytes() == weights and stopped.metrics.read_bytes() == log


def test_there_must_be_a_step_of_one_run_to_finish_from(stopped: RunFolder, tmp_path: Path) -> None:
    for checkpoint in stopped.checkpoints.glob("step-*"):
        checkpoint.rename(tmp_path / checkpoint.name)
    with pytest.raises(CheckpointError, match="has no step to finish from"):
        glassformer.resume(stopped.path, finish=True)
    assert main(["train", "classify", "--finish", "--train-file", str(tmp_path / "table.csv")]) == 2
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "seeds.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match="this folder holds several"):
        glassformer.resume(tmp_path / "several", finish=True)

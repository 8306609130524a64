"""A checkpoint that someone changed and sealed again is refused with exit code 4, in bounded time, not trained on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import SMALL, Killed, kill_at, write_table
from torch import Tensor

import glassformer
from glassformer.cli.main import main
from glassformer.errors import CheckpointError
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import CHECKPOINT_KIND, STATE, TENSORS, load_checkpoint, tensor_chunks
from glassformer.runs.sealed_folder import write_sealed_folder
from glassformer.training.loop import RunContext
from glassformer.training.preparation import prepare
from glassformer.training.trainer import resumed_state

Change = Callable[[dict[str, Tensor], dict[str, Any]], object]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its checkpoint of step 12, in its second epoch, with a best validation."""
    folder = tmp_path_factory.mktemp("unfinished")
    settings = SMALL | {"batch_size": 8, "steps": 20, "save_every": 4, "ema_decay": 0.9, "validate_min_steps": 1}
    with pytest.raises(Killed):
        glassformer.train(
            "classify", train_file=write_table(folder), out=folder / "run", on_step=kill_at(13), **settings
        )
    return folder / "run"


def change_checkpoint(run: Path, change: Change) -> None:
    """Change tensors or state of the newest checkpoint, and seal it as a forger would."""
    path = max((run / "checkpoints").glob("step-*"))
    tensors, state = load_checkpoint(path)
    change(tensors, state)
    files = {TENSORS: tensor_chunks(tensors), STATE: [json.dumps(state).encode()]}
    write_sealed_folder(path, CHECKPOINT_KIND, files)


def progress(**values: Any) -> Change:
    return lambda tensors, state: state["progress"].update(values)


def without(group: str) -> Change:
    """Leave a group of tensors out."""

    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith(f"{group}:")]:
            del tensors[name]

    return change


def tensor(name: str, make: Callable[[Tensor], Tensor]) -> Change:
    """Put another tensor in the place of the first whose name begins so."""

    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        found = next(full for full in sorted(tensors) if full.startswith(name))
        tensors[found] = make(tensors[found])

    return change


def renamed(old: str, new: str) -> Change:
    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        found = next(full for full in sorted(tensors) if full.startswith(old))
        tensors[new] = tensors.pop(found)

    return change


NUMBERS = [{"epoch": "1"}, {"step": None}, {"position": -1}, {"seconds": float("nan")}, {"finished": "x"}]
TENSORS_CHANGED: dict[str, Change] = {
    **{f"no {group}": without(group) for group in ("best", "ema", "model")},
    "ema of another shape": tensor("ema:", lambda t: t.flatten()[:1].clone()),
    "best of another name": renamed("best:", "best:x"),
    "optimizer of another name": renamed("optimizer:", "optimizer:x/exp_avg"),
    "optimizer of another shape": tensor("optimizer:embedding", lambda t: t.flatten()[:1].clone()),
}
STATES: dict[str, Change] = {
    "no progress": lambda tensors, state: state.pop("progress"),
    "progress of strings": lambda tensors, state: state.update(progress=dict.fromkeys(state["progress"], "x")),
    "progress a list": lambda tensors, state: state.update(progress=[1]),
    "no start": lambda tensors, state: state.pop("begun_with"),
    "start a list": lambda tensors, state: state.update(begun_with=[]),
    "another start": lambda tensors, state: state.update(begun_with="00"),
}
CHANGES = {f"{values}": progress(**values) for values in NUMBERS} | TENSORS_CHANGED | STATES


@pytest.fixture(scope="module")
def context(unfinished: Path) -> RunContext:
    """What a resume prepares from the data, once for all attacks."""
    folder = RunFolder(unfinished)
    return prepare(folder.read_config(), folder.read_tokenizer())


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_checkpoint_is_refused(unfinished: Path, context: RunContext, tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    change_checkpoint(run, CHANGES[name])
    log = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="step-00000012") as caught:
        resumed_state(context, RunFolder(run))
    assert caught.value.hint
    assert (run / "metrics.jsonl").read_bytes() == log, "nothing is written"


def test_an_unchanged_checkpoint_sealed_again_is_resumed(unfinished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    change_checkpoint(run, lambda tensors, state: None)
    assert main(["train", "--resume", str(run)]) == 0


LINES = ['{"loss": 1.0}', '{"step": "3"}', '{"step": null}', "[1]", "7", "{", '{"step": 1.5}', '{"step": true}']


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_none_of_a_log_is_dropped(tmp_path: Path, line: str) -> None:
    """A process that died, or a disk that was cut off, leaves it."""
    lines = ['{"step": 1}\n', '{"step": 2}\n']
    (tmp_path / "metrics.jsonl").write_text((line + "\n").join(["", *lines, ""]), "utf-8")
    RunFolder(tmp_path).truncate_metrics(2)
    assert (tmp_path / "metrics.jsonl").read_text("utf-8") == "".join(lines)


def test_steps_that_the_log_lacks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 3}\n{"step": 4}\n', "utf-8")
    RunFolder(tmp_path).truncate_metrics(4)
    assert "lacks 2 of the 4 steps" in capsys.readouterr().err

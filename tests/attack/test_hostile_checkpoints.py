"""A run that someone changed is not trained on: a checkpoint sealed again, other settings, data or tokenizer."""

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


def tensor(start: str, make: Callable[[Tensor], Tensor], name: str = "") -> Change:
    """Put another tensor, perhaps of another name, in the place of the first whose name begins so."""

    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        found = next(full for full in sorted(tensors) if full.startswith(start))
        tensors[name or found] = make(tensors.pop(found))

    return change


NUMBERS = [{"epoch": "1"}, {"step": None}, {"position": -1}, {"seconds": float("nan")}, {"finished": "x"}]
TENSORS_CHANGED: dict[str, Change] = {
    **{f"no {group}": without(group) for group in ("best", "ema", "model", "optimizer", "rng")},
    "ema of another shape": tensor("ema:", lambda t: t.flatten()[:1].clone()),
    "best of another name": tensor("best:", Tensor.clone, "best:x"),
    "optimizer of another name": tensor("optimizer:", Tensor.clone, "optimizer:x/exp_avg"),
    "optimizer of another shape": tensor("optimizer:embedding", lambda t: t.flatten()[:1].clone()),
}
STATES: dict[str, Change] = {
    "no progress": lambda tensors, state: state.pop("progress"),
    "progress of strings": lambda tensors, state: state.update(progress=dict.fromkeys(state["progress"], "x")),
    "progress a list": lambda tensors, state: state.update(progress=[1]),
    "no names of tensors": lambda tensors, state: state.pop("tensors"),
    "no start": lambda tensors, state: state.pop("begun_with"),
    "start a list": lambda tensors, state: state.update(begun_with=[]),
    "another start": lambda tensors, state: state.update(begun_with="00"),
}
CHANGES = {f"{values}": progress(**values) for values in NUMBERS} | TENSORS_CHANGED | STATES


@pytest.fixture(scope="module")
def context(unfinished: Path) -> RunContext:
    """What a resume prepares from the data, once for all attacks."""
    folder = RunFolder(unfinished)
    return prepare(folder.read_config(), folder)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_checkpoint_is_refused(unfinished: Path, context: RunContext, tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    change_checkpoint(run, CHANGES[name])
    log = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="step-00000012") as caught:
        resumed_state(context, RunFolder(run))
    assert caught.value.hint
    assert (run / "metrics.jsonl").read_bytes() == log, "nothing is written"


def test_an_unchanged_run_is_resumed_whatever_the_layout_of_its_files(unfinished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    change_checkpoint(run, lambda tensors, state: None)
    edited("data.json", lambda data: None)(run)
    (run / "config.toml").write_text("# a remark\n" + (run / "config.toml").read_text("utf-8"), "utf-8")
    assert main(["train", "--resume", str(run)]) == 0


LINES = ['{"loss": 1.0}', '{"step": "3"}', '{"step": null}', "[1]", "7", "{", '{"step": 1.5}', '{"step": true}']


def test_a_line_that_is_none_of_a_log_is_dropped_and_missing_steps_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that died, or a disk that was cut off, leaves it."""
    lines = ['{"step": 3}\n', '{"step": 4}\n']
    for line in LINES:
        (tmp_path / "metrics.jsonl").write_text((line + "\n").join(["", *lines, ""]), "utf-8")
        RunFolder(tmp_path).truncate_metrics(4)
        assert (tmp_path / "metrics.jsonl").read_text("utf-8") == "".join(lines), line
        assert "lacks 2 of the 4 steps" in capsys.readouterr().err


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        text = (run / name).read_text("utf-8")
        assert old in text
        (run / name).write_text(text.replace(old, new, 1), "utf-8")

    return change


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def act(run: Path) -> None:
        value = json.loads((run / name).read_text("utf-8"))
        change(value)
        (run / name).write_text(json.dumps(value), "utf-8")

    return act


OTHERWISE: dict[str, Callable[[Path], object]] = {
    "lr": replaced("config.toml", "lr = 0.005", "lr = 0.007"),
    "beta": replaced("config.toml", "beta2 = 0.98", "beta2 = 0.97"),
    "setting left out": replaced("config.toml", "lr = 0.005\n", ""),
    "data deleted": lambda run: (run / "data.json").unlink(),
    "data empty": lambda run: (run / "data.json").write_text("{}"),
    "data notes": edited("data.json", lambda data: data["notes"].append("x")),
    "tokenizer": edited("tokenizer.json", lambda content: content["model"]["vocab"].popitem()),
    "env deleted": lambda run: (run / "env.json").unlink(),
    "nothing recorded": edited("env.json", lambda env: env.pop("begun_with")),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_was_begun_otherwise_is_not_resumed(
    unfinished: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    OTHERWISE[name](run)
    assert main(["train", "--resume", str(run)]) == 4
    error = capsys.readouterr().err
    assert str(run) in error and "this is a bug" not in error
    assert len(error.strip().splitlines()) <= 2


def test_a_changed_seed_run_stops_the_others(tmp_path: Path) -> None:
    """The seeds that remain take the settings of the first, so that they are compared by their seed alone."""

    def kill(_: Any) -> None:
        if (tmp_path / "x" / "seed-2").exists():
            raise Killed

    with pytest.raises(Killed):
        settings = SMALL | {"steps": 2}
        glassformer.train(
            "classify", train_file=write_table(tmp_path), out=tmp_path / "x", seeds=2, on_step=kill, **settings
        )
    replaced("config.toml", "lr = 0.005", "lr = 0.007")(tmp_path / "x" / "seed-1")
    with pytest.raises(CheckpointError, match=r"seed-1/config\.toml, .* is not what the run was begun with"):
        glassformer.resume(tmp_path / "x")
    assert not RunFolder(tmp_path / "x" / "seed-2").finished

"""A run is not resumed with other settings, another record of its data or another tokenizer than it was begun with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import SMALL, Killed, kill_at, write_table

import glassformer
from glassformer.cli.main import main
from glassformer.errors import CheckpointError
from glassformer.runs.folder import RunFolder


def train_until(folder: Path, step: int, **settings: Any) -> Path:
    """Train a run that is killed after a step; return its folder."""
    with pytest.raises(Killed):
        glassformer.train(
            "classify", train_file=write_table(folder), out=folder / "run", on_step=kill_at(step), **SMALL | settings
        )
    return folder / "run"


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed")
    return train_until(folder, 4, steps=5, save_every=3, validate_min_steps=100)


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


CHANGES: dict[str, Callable[[Path], object]] = {
    "lr": replaced("config.toml", "lr = 0.005", "lr = 0.007"),
    "decay": replaced("config.toml", "weight_decay = ", "weight_decay = 1"),
    "setting left out": replaced("config.toml", "lr = 0.005\n", ""),
    "data deleted": lambda run: (run / "data.json").unlink(),
    "data empty": lambda run: (run / "data.json").write_text("{}"),
    "data notes": edited("data.json", lambda data: data["notes"].append("x")),
    "tokenizer": edited("tokenizer.json", lambda content: content["model"]["vocab"].popitem()),
    "env deleted": lambda run: (run / "env.json").unlink(),
    "nothing recorded": edited("env.json", lambda env: env.pop("begun_with")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_begun_otherwise_is_not_resumed(
    unfinished: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    CHANGES[name](run)
    assert main(["train", "--resume", str(run)]) == 4
    error = capsys.readouterr().err
    assert str(run) in error and "this is a bug" not in error
    assert len(error.strip().splitlines()) <= 2


def test_layout_and_order_of_the_files_do_not_matter(unfinished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(unfinished, tmp_path / "run"))
    edited("data.json", lambda data: None)(run)
    (run / "config.toml").write_text("# mine\n" + (run / "config.toml").read_text("utf-8"), "utf-8")
    assert main(["train", "--resume", str(run)]) == 0


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

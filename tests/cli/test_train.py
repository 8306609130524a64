from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.tiny_runs import SMALL, Runs

from glassformer.config.recipes import load_recipe


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there are: classify, dates"),
        (["imbd"], "did you mean 'imdb'"),
        (["./my.toml"], "a path must lead to a TOML file"),
        (["imdb", "dates"], "train takes [RECIPE]; 2 came: imdb dates"),
        (["imdb", "--hlep"], "did you mean '--help'?"),
        (["imdb", "--lr", "nan"], "--lr must be a number in (0, inf); got nan"),
        (["imdb", "--out"], "--out needs a value"),
        (["dates", "--seeds", "0"], "at least 2; got 0"),
    ],
    ids=str,
)
def test_what_a_person_mistypes(words: list[str], message: str, cli: Callable) -> None:
    outcome = cli("train", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) <= 2


def test_missing_and_empty_data_files_are_data_errors_before_training(cli: Callable, tmp_path: Path) -> None:
    out = tmp_path / "run"
    missing = cli("train", "classify", "--train-file", tmp_path / "none.csv", "--out", out)
    (tmp_path / "empty.csv").touch()
    empty = cli("train", "classify", "--train-file", tmp_path / "empty.csv", "--out", out)
    unnamed = cli("train", "classify", "--out", out)
    assert (missing.code, empty.code, unnamed.code) == (3, 3, 2)
    assert "none.csv" in missing.err and "empty.csv" in empty.err and "--train-file" in unnamed.err
    assert not out.exists()


def test_a_folder_in_use_is_refused_with_the_way_on(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    before = sorted(p.name for p in runs.classify.iterdir())
    message = cli("train", "classify", "--train-file", runs.table, "--out", runs.classify)
    assert message.code == 2
    assert f"glassformer train --resume {runs.classify}" in message.err
    assert sorted(p.name for p in runs.classify.iterdir()) == before
    (tmp_path / "mine.txt").write_text("precious", encoding="utf-8")
    message = cli("train", "dates", "--out", tmp_path)
    assert message.code == 2 and "is not empty" in message.err and "--resume" not in message.err


def test_a_folder_that_cannot_be_is_refused(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = cli("train", "classify", "--train-file", runs.table, "--out", tmp_path / "file" / "run")
    assert message.code == 6 and f"{tmp_path / 'file' / 'run'} cannot be written" in message.err


def test_json_is_the_evaluation_alone(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    message = cli("train", "classify", "--train-file", runs.table, "--out", tmp_path / "run", "--json", *SMALL)
    assert message.code == 0
    scores = json.loads(message.out)
    assert scores["task"] == "classify" and 0 <= scores["accuracy"] <= 1
    assert "step 4" in message.err and "report:" in message.err


def test_a_recipe_by_path_with_flags_over_it(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    text = (runs.classify / "config.toml").read_text(encoding="utf-8")
    recipe.write_text(text.replace("steps = 4", "steps = 2"), encoding="utf-8")
    message = cli("train", recipe, "--out", tmp_path / "run", "--seed", "7", "--model.n-layers=2")
    assert message.code == 0, message.err
    config = load_recipe(tmp_path / "run")
    assert (config.train.steps, config.train.seed, config.model.n_layers) == (2, 7, 2)


def test_resume_goes_on_and_takes_nothing_else(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    done = cli("train", "--resume", runs.lm, "--json")
    assert done.code == 0
    assert json.loads(done.out)["task"] == "lm"
    refused = cli("train", "--resume", runs.lm, "--lr", "3")
    assert refused.code == 2 and "--lr" in refused.err
    nothing = cli("train", "--resume", tmp_path / "gone")
    assert nothing.code == 4 and "does not exist" in nothing.err
    near = cli("train", "--resume", runs.lm.with_name("lmm"))
    assert near.code == 4 and "did you mean 'lm'?" in near.err


def test_a_dry_run_and_one_batch_make_no_folder(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    command = ["train", "classify", "--train-file", runs.table, "--out", tmp_path / "run", *SMALL]
    dry = cli(*command, "--dry-run")
    assert dry.code == 0, dry.err
    assert "parameters" in dry.err and "54 examples" in dry.err
    batch = cli(*command, "--overfit-batch", "--model.d-model", "64", "--lr", "0.01")
    assert batch.code == 0, batch.err
    assert "the model can learn" in batch.err
    assert list(tmp_path.iterdir()) == []

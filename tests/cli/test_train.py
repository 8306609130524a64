from __future__ import annotations

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
        (["imdb", "--out"], "--out needs a value"),
        (["dates", "--seeds", "0"], "at least 2; got 0"),
    ],
    ids=str,
)
def test_what_a_person_mistypes(words: list[str], message: str, cli: Callable) -> None:
    outcome = cli("train", *words)
    assert outcome.code == 2 and outcome.out == "" and message in outcome.err and outcome.err.count("\n") <= 2


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
    (tmp_path / "file").touch()
    for out, code, text in (
        (runs.classify, 2, f"glassformer train --resume {runs.classify}"),
        (tmp_path, 2, "is not empty"),
        (tmp_path / "file" / "run", 6, f"{tmp_path / 'file' / 'run'} cannot be written"),
    ):
        message = cli("train", "classify", "--train-file", runs.table, "--out", out)
        assert message.code == code and text in message.err
        assert ("--resume" in message.err) == (out == runs.classify)
    assert sorted(p.name for p in runs.classify.iterdir()) == before


def test_a_recipe_by_path_with_flags_over_it_and_the_evaluation_as_json(
    cli: Callable, runs: Runs, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.toml"
    text = (runs.classify / "config.toml").read_text(encoding="utf-8")
    recipe.write_text(text.replace("steps = 4", "steps = 2"), encoding="utf-8")
    message = cli("train", recipe, "--out", tmp_path / "run", "--seed", "7", "--model.n-layers=2", "--json").ok
    config, scores = load_recipe(tmp_path / "run"), message.json
    assert (config.train.steps, config.train.seed, config.model.n_layers) == (2, 7, 2)
    assert scores["task"] == "classify" and 0 <= scores["accuracy"] <= 1
    assert "step 2" in message.err and "report:" in message.err


def test_resume_continues_and_takes_nothing_else(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    assert cli("train", "--resume", runs.lm, "--json").json["task"] == "lm"
    for words, code, text in (
        ([runs.lm, "--lr", "3"], 2, "--lr"),
        ([tmp_path / "gone"], 4, "does not exist"),
        ([runs.lm.with_name("lmm")], 4, "did you mean 'lm'?"),
    ):
        refused = cli("train", "--resume", *words)
        assert refused.code == code and text in refused.err


def test_a_dry_run_and_one_batch_make_no_folder(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    command = ["train", "classify", "--train-file", runs.table, "--out", tmp_path / "run", *SMALL]
    dry = cli(*command, "--dry-run").ok
    assert "parameters" in dry.err and "54 examples" in dry.err
    wider = [word if word != "16" else "64" for word in command]
    batch = cli(*wider, "--overfit-batch", "--lr", "0.01").ok
    assert "the model can learn" in batch.err
    assert list(tmp_path.iterdir()) == []

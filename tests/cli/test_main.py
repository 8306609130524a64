import errno
import os
import subprocess
import sys
from unittest import mock

import pytest
from tests.helpers.tiny_runs import SMALL

from glassformer import errors
from glassformer.cli import main as module
from glassformer.config.recipes import load_recipe

ERRORS = "GlassformerError UsageError DataError CheckpointError DivergedError ResourceError Interrupted".split()
CASES = [
    *((getattr(errors, name)("x"), code) for name, code in zip(ERRORS, [1, 2, 3, 4, 5, 6, 130], strict=True)),
    (errors.Interrupted("x", exit_code=143), 143),
    (KeyboardInterrupt(), 130),
    (MemoryError(), 6),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"), 6),
    (OSError(errno.ENOSPC, "No space left on device", "a/b"), 6),
    (OSError(errno.EFBIG, "File too large"), 6),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.csv"), 2),
    (PermissionError(errno.EACCES, "Permission denied", "a.csv"), 2),
    (ValueError("surprise"), 1),
    (RuntimeError("surprise"), 1),
    (SystemExit(0), 0),
    (BrokenPipeError(), 6),  # stdout's own is another
]


@pytest.mark.parametrize(("error", "code"), CASES, ids=lambda value: repr(value)[:40])
def test_every_error_ends_in_its_exit_code(error, code, cli, monkeypatch):
    monkeypatch.setattr(module, "_dispatch", mock.Mock(side_effect=error))
    message = cli("train")
    assert message.code == code and message.out == "" and "Traceback" not in message.err
    assert code in (0, 130, 143) or message.err.startswith("error: ")
    assert ("bug" in message.err) == (code == 1 and not isinstance(error, errors.GlassformerError))


def test_debug_shows_the_traceback_and_json_errors_are_on_stdout_too(cli, monkeypatch):
    message = cli("train", "imbd", "--json")
    error = message.json["error"]
    assert message.code == error["exit_code"] == 2 and error["kind"] == "UsageError" and "imdb" in error["hint"]

    fails = mock.Mock(side_effect=errors.DataError("a.csv:3: no label", "mend it"))
    monkeypatch.setattr(module, "_dispatch", fails)
    message = cli("train", "--debug")
    fails.assert_called_with(["train"])  # the flag is not passed on
    assert message.code == 3 and "Traceback" in message.err
    assert message.err.endswith("error: a.csv:3: no label\nhint: mend it\n")


def test_help_names_every_command_and_each_has_help(cli):
    for words in (["--help"], ["-h"], ["help"], []):
        message = cli(*words).ok
        assert "verb" not in message.out.lower()
        assert all(f"\n  {verb} " in message.out for verb in module.COMMANDS)
    assert cli("--version").out.startswith("glassformer 0.")
    for verb in module.COMMANDS:
        message = cli(verb, "--help").ok
        assert f"usage: glassformer {verb}" in message.out
        assert "--json" in message.out and message.err == ""


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        ("trian", "no command is called 'trian'\nhint: did you mean 'train'?"),
        ("--verison", "glassformer has no flag --verison\nhint: did you mean '--version'?"),
        ("-hlep", "did you mean '--help'?"),
        ("imdb", "glassformer train imdb"),
        ("--lr", "there are: demo, train"),
    ],
)
def test_unknown_commands_get_a_suggestion(verb, hint, cli):
    cli(verb).refused(hint)


def test_the_streams_are_utf8_whatever_the_locale():
    script = "from glassformer.cli.main import main; main(['recipes', 'n\\u00f6'])"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, env=env)
    assert "'n\u00f6'" in result.stderr.decode("utf-8")


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
def test_what_a_person_mistypes(words, message, cli):
    outcome = cli("train", *words)
    assert outcome.code == 2 and outcome.out == "" and message in outcome.err and outcome.err.count("\n") <= 2


def test_a_folder_in_use_is_refused_with_the_way_on(cli, runs, tmp_path):
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


def test_a_recipe_by_path_with_flags_over_it_and_the_evaluation_as_json(cli, runs, tmp_path):
    recipe = tmp_path / "mine.toml"
    text = (runs.classify / "config.toml").read_text("utf-8")
    recipe.write_text(text.replace("steps = 4", "steps = 2"), "utf-8")
    message = cli("train", recipe, "--out", tmp_path / "run", "--seed", "7", "--model.n-layers=2", "--json").ok
    config, scores = load_recipe(tmp_path / "run"), message.json
    assert (config.train.steps, config.train.seed, config.model.n_layers) == (2, 7, 2)
    assert scores["task"] == "classify" and 0 <= scores["accuracy"] <= 1
    assert "step 2" in message.err and "report:" in message.err


def test_resume_continues_and_takes_nothing_else(cli, runs, tmp_path):
    assert cli("train", "--resume", runs.lm, "--json").json["task"] == "lm"
    for words, code, text in (
        ([runs.lm, "--lr", "3"], 2, "--lr"),
        ([tmp_path / "gone"], 4, "does not exist"),
        ([runs.lm.with_name("lmm")], 4, "did you mean 'lm'?"),
    ):
        cli("train", "--resume", *words).refused(text, code=code)


def test_a_dry_run_and_one_batch_make_no_folder(cli, runs, tmp_path):
    command = ["train", "classify", "--train-file", runs.table, "--out", tmp_path / "run", *SMALL]
    dry = cli(*command, "--dry-run").ok
    assert "parameters" in dry.err and "54 examples" in dry.err
    wider = [word if word != "16" else "64" for word in command]
    batch = cli(*wider, "--overfit-batch", "--lr", "0.01").ok
    assert "the model can learn" in batch.err
    assert list(tmp_path.iterdir()) == []

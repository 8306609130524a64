from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.tiny_runs import Runs

from glassformer.cli import compare, data, demo, doctor, evaluate, explain, export, flags, predict, recipes, train
from glassformer.config.recipes import homes, load_recipe, override
from glassformer.errors import CheckpointError, UsageError

ARGUMENTS = {
    "compare": compare.CompareArguments,
    "data": data.DataArguments,
    "demo": demo.DemoArguments,
    "doctor": doctor.DoctorArguments,
    "evaluate": evaluate.EvaluateArguments,
    "explain": explain.ExplainArguments,
    "export": export.ExportArguments,
    "import": import_module("glassformer.cli.import").ImportArguments,
    "predict": predict.PredictArguments,
    "recipes": recipes.RecipesArguments,
    "train": train.TrainArguments,
}
FROZEN = Path(__file__).with_name("options.txt")


def test_the_options_are_those_written_down() -> None:
    """A flag that goes or changes its name breaks somebody's script: it shows here first."""
    now = "".join(
        f"{verb} {name}\n"
        for verb, cls in sorted(ARGUMENTS.items())
        for name in sorted(name for name in flags.known_flags(cls) if "no-" not in name)
    )
    assert now == FROZEN.read_text(encoding="utf-8"), (
        f"if this is meant, write it to {FROZEN.name} and the changelog:\n{now}"
    )


def test_every_field_of_the_configuration_is_a_flag_of_train() -> None:
    known = flags.known_flags(train.TrainArguments)
    for name, section in homes().items():
        prefix = f"{section}." if section in flags.PREFIXED else ""
        assert f"--{prefix}{name.replace('_', '-')}" in known


@pytest.mark.parametrize(
    ("argv", "words", "given"),
    [
        (["imdb", "--lr", "3"], ["imdb"], ["--lr=3"]),
        (["--lr", "3", "imdb"], ["imdb"], ["--lr=3"]),
        (["--lr=3", "imdb", "--dry-run", "x"], ["imdb", "x"], ["--lr=3", "--dry-run"]),
        (["--max_tokens", "9", "--train.lr=1", "--data.limit", "4"], [], ["--max-tokens=9", "--lr=1", "--limit=4"]),
        (["--lr", "-1"], [], ["--lr=-1"]),
        (["--text-column", "--odd--"], [], ["--text-column=--odd--"]),
        (["--text-column", ""], [], ["--text-column="]),
        (["--model.no-bias"], [], ["--model.no-bias"]),
        (["a", "--", "--lr", "-h"], ["a", "--lr", "-h"], []),
        (["-5", "-"], ["-5", "-"], []),
        (["-h"], [], ["--help"]),
    ],
    ids=str,
)
def test_words_and_flags_are_parted(argv: list[str], words: list[str], given: list[str]) -> None:
    assert flags.split_words(train.TrainArguments, argv, "train") == (words, given)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--minuts", "3"], "did you mean '--minutes'?"),
        (["--n-layers", "3"], "did you mean --model.n-layers?"),
        (["--max-len=3"], "did you mean --text.max-len?"),
        (["--model.n-layer", "3"], "did you mean '--model.n-layers'?"),
        (["--xyzzy"], "see --help for all"),
        (["--dry-run=maybe"], "--dry-run turns it on"),
        (["--lr"], "glassformer train --help"),
        (["--lr", "--max-grad-norm", "1"], "glassformer train --help"),
    ],
    ids=str,
)
def test_wrong_flags_get_a_hint(argv: list[str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        flags.split_words(train.TrainArguments, argv, "train")
    assert text in caught.value.hint


def test_values_that_do_not_fit_are_one_line() -> None:
    for given, message in (
        ("--lr=abc", "flags: train.lr must be a number in (0, inf); got 'abc'"),
        ("--limit=1.5", "flags: data.limit must be a whole number in [1, inf); got '1.5'"),
        ("--device=gpu", "flags: train.device must be one of auto, cpu, cuda, mps; got 'gpu'"),
        ("--seeds=two", "flags: --seeds must be a whole number; got 'two'"),
    ):
        with pytest.raises(UsageError) as caught:
            flags.parse_for_recipe(train.TrainArguments, [given], load_recipe("imdb"), "train imdb")
        assert caught.value.message == message


def test_a_run_folder_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "ende").mkdir()
    (tmp_path / "ende" / "config.toml").touch()
    assert flags.run_folder(str(tmp_path / "ende")) == tmp_path / "ende"
    with pytest.raises(CheckpointError, match="does not exist") as caught:
        flags.run_folder(str(tmp_path / "edne"))
    assert caught.value.hint == "did you mean 'ende'?"
    with pytest.raises(CheckpointError, match="holds no run"):
        flags.run_folder(str(tmp_path))
    with pytest.raises(CheckpointError, match="is not a folder"):
        flags.run_folder(str(tmp_path / "ende" / "config.toml"))


def test_only_what_was_given_is_passed_on() -> None:
    arguments, options = flags.read(predict.PredictArguments, ["--beam-size=2", "--json"], "predict RUN")
    assert options == {"beam_size": 2} and arguments == predict.PredictArguments(json=True)


OFFERED = {
    "imdb": (
        {"--beta1", "--weight-decay", "--model.pooling", "--text.truncate"},
        {"--train-file", "--src-lang", "--n-dates", "--momentum", "--beam-size"},
    ),
    "imdb-tutorial": ({"--beta1"}, {"--weight-decay", "--momentum"}),
    "dates": (
        {"--n-dates", "--beam-size", "--sample"},
        {"--train-file", "--src-lang", "--model.pooling", "--text.truncate"},
    ),
    "multi30k-en-de": ({"--src-lang", "--weight-decay"}, {"--n-dates", "--src-file"}),
    "classify": ({"--train-file", "--label-column"}, {"--src-file", "--src-column", "--n-dates", "--top-k"}),
    "translate": ({"--train-file", "--src-file", "--src-column"}, {"--label-column"}),
    "pretrain": (
        {"--train-file", "--text-column", "--top-k", "--init-from"},
        {"--label-column", "--src-file", "--model.pooling", "--word-mask-prob", "--beam-size"},
    ),
    "lm": (
        {"--train-file", "--top-k", "--max-new-tokens"},
        {"--src-file", "--text-column", "--beam-size", "--sample", "--model.pooling"},
    ),
}


@pytest.mark.parametrize("recipe", OFFERED)
def test_the_help_of_a_recipe_shows_what_it_can_use(recipe: str, cli: Callable) -> None:
    text = cli("train", recipe, "--help").out
    shown = set(re.findall(r"--[a-z0-9.-]+", text))
    offered, hidden = OFFERED[recipe]
    assert offered <= shown and not hidden & shown
    assert {"--minutes", "--lr", "--out", "--model.n-layers", "--text.max-len"} <= shown


def test_help_without_a_recipe_shows_recipes_and_every_flag(cli: Callable) -> None:
    out = cli("train", "--help").out
    assert out.index("shakespeare") < out.index("usage: glassformer train")
    shown = {flag.replace("no-", "") for flag in re.findall(r"--[a-z0-9.-]+", out)}
    assert {flag.replace("no-", "") for flag in flags.known_flags(train.TrainArguments)} <= shown


def test_help_has_range_default_and_placeholder_of_a_flag(cli: Callable) -> None:
    out = " ".join(cli("train", "imdb", "--help").out.replace("│", " ").split())
    assert "--accumulate INT Number of batches whose gradients are accumulated into one step. (≥ 1, default 1)" in out
    assert "--split-seed INT Seed of the held-out split. (in [0, 4294967295], default 0)" in out
    assert "--init-from RUN" in out and "{None}" not in out and "default: " not in out


@for_each(
    ("words", "value"),
    [
        ([], True),
        (["--no-snapshots"], False),
        (["--snapshots"], True),
        (["--no-snapshots", "--snapshots"], True),
        (["--snapshots", "--no-snapshots"], False),
    ],
)
def test_last_flag_of_a_switch_counts(words: list[str], value: bool) -> None:
    _, config = flags.parse_for_recipe(train.TrainArguments, words, load_recipe("dates"), "train dates")
    assert config.train.snapshots is value


def test_what_is_chosen_by_a_flag_brings_its_settings(cli: Callable) -> None:
    shown = set(re.findall(r"--[a-z0-9.-]+", cli("train", "imdb", "--optimizer", "sgd", "--help").out))
    assert {"--momentum", "--weight-decay"} <= shown and "--beta1" not in shown


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["imdb", "--beam-size", "3"], "the task classify has no use for --beam-size"),
        (["imdb", "--n-dates", "3"], "data.n_dates is for dates, and data.dataset is imdb"),
        (["lm", "--no-sample"], "the task lm has no use for --no-sample"),
        (["dates", "--model.pooling", "max"], "the task translate has no use for --model.pooling"),
        (["imdb-tutorial", "--weight-decay", "0.1"], "train.weight_decay is for adamw or sgd or muon"),
        (["imdb", "--optimizer", "sgd", "--beta1", "0.9"], "train.beta1 is for adamw or adam or muon"),
        (["imdb", "--optimizer=adm"], "did you mean 'adam'?"),
        (["imdb", "--beta1", "2"], "train.adamw.beta1 must be a number in [0, 1); got 2.0"),
    ],
    ids=str,
)
def test_a_flag_that_a_recipe_cannot_use_is_refused(words: list[str], text: str, cli: Callable) -> None:
    outcome = cli("train", *words)
    assert outcome.code == 2 and text in outcome.err


def test_settings_of_what_is_chosen_arrive() -> None:
    given = ["--optimizer=sgd", "--momentum=0.5", "--minutes=3", "--limit=7"]
    _, config = flags.parse_for_recipe(train.TrainArguments, given, load_recipe("imdb"), "train imdb")
    assert config == override(load_recipe("imdb"), {"optimizer": "sgd", "momentum": 0.5, "minutes": 3, "limit": 7})
    assert config.train.sgd.momentum == 0.5 and config.train.epochs is None


def test_a_run_offers_the_decoding_it_has(cli: Callable, runs: Runs) -> None:
    refused = cli("predict", runs.classify, "--beam-size", "2", "a text")
    assert refused.code == 2 and "the task classify has no use for --beam-size" in refused.err
    assert "--beam-size" in cli("predict", runs.translate, "--help").out
    assert "--beam-size" not in cli("evaluate", runs.lm, "--help").out

import re
from typing import Any

import pytest

import glassformer
from glassformer.cli import flags, train, use
from glassformer.cli.main import COMMANDS, class_of
from glassformer.config.recipes import HOMES, load_recipe, override
from glassformer.errors import CheckpointError, UsageError, options_as_flags


def settings_of(*argv: str, recipe: str = "imdb") -> Any:
    """Return what `train RECIPE` makes of flags."""
    with options_as_flags():
        return flags.read(train.Train, [recipe, *argv]).configured(load_recipe(recipe))


def test_every_field_of_the_configuration_is_a_flag_and_a_command_has_at_most_twelve_of_its_own():
    known = {flag.name for flag in flags.flags_of(train.Train)}
    for name, section in HOMES.items():
        prefix = f"{section}." if section in flags.PREFIXED else ""
        assert f"--{prefix}{name.replace('_', '-')}" in known
    for command in COMMANDS:
        assert len([flag for flag in flags.flags_of(class_of(command)) if "." not in flag.key]) <= 12, command


@pytest.mark.parametrize(
    ("argv", "words", "given"),
    [
        (["--lr", "3", "imdb"], ["imdb"], {"lr": 3.0}),
        (["--lr=3", "imdb", "--dry-run"], ["imdb"], {"lr": 3.0, "dry_run": True}),
        (["--lr", "-1"], [], {"lr": -1.0}),
        (["--text-column", "--odd--"], [], {"text_column": "--odd--"}),
        (["--text-column", ""], [], {"text_column": ""}),
        (["--model.no-bias", "-o=y"], [], {"bias": False, "out": "y"}),
        (["--", "--lr"], ["--lr"], {}),
        (["-"], ["-"], {}),
    ],
    ids=str,
)
def test_words_and_flags_are_parted(argv, words, given):
    assert flags.parse(train.Train, argv) == (words, given, False)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--minuts", "3"], "did you mean '--minutes'?"),
        (["--n-layers", "3"], "did you mean '--model.n-layers'?"),
        (["--train.lr=3"], "did you mean '--lr'?"),
        (["--max_tokens", "9"], "did you mean '--max-tokens'?"),
        (["--learning_rate", "9"], "did you mean '--lr'?"),
        (["--per_device_train_batch_size", "9"], "did you mean '--batch-size'?"),
        (["--xyzzy"], "see --help for all"),
        (["--dry-run=maybe"], "leave out the value"),
        (["-o", "x", "-o=y"], "give it once"),
        (["--lr", "--max-grad-norm", "1"], "glassformer train --help"),
    ],
    ids=str,
)
def test_wrong_flags_get_a_hint(argv, text):
    with options_as_flags(), pytest.raises(UsageError) as caught:
        flags.read(train.Train, argv)
    assert text in caught.value.hint


def test_a_word_that_is_written_as_a_flag_is_named():
    with pytest.raises(UsageError, match="predict-table has no flag --out") as caught:
        flags.read(use.PredictTable, ["runs/imdb", "in.csv", "--out", "out.csv"])
    assert caught.value.hint == "OUT is written without a flag: predict-table RUN[,RUN,…] TABLE OUT"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--lr=abc", "flags: --lr must be a number in (0, inf); got 'abc'"),
        ("--limit=1.5", "flags: --limit must be a whole number in [1, inf); got '1.5'"),
        ("--device=gpu", "flags: --device must be one of auto, cpu, cuda, mps; got 'gpu'"),
        ("--seeds=two", "flags: --seeds must be a whole number; got 'two'"),
        ("--beta1=2", "flags: --beta1 must be a number in [0, 1); got 2.0"),
        ("--model.n-heads=3", "flags: --model.d-model 128 is not a multiple of --model.n-heads 3"),
        ("--beam-size 3", "the task classify has no use for --beam-size"),
        ("--n-dates 3", "flags: --n-dates is for dates, and --dataset is imdb"),
        ("--optimizer sgd --beta1 0.9", "flags: --beta1 is for adamw or adam or muon, and --optimizer is sgd"),
    ],
)
def test_a_flag_is_named_as_it_is_written(given, message):
    with pytest.raises(UsageError) as caught:
        settings_of(*given.split())
    assert caught.value.message == message


def test_an_option_of_python_is_named_as_it_is_written():
    for options, hint in (
        ({"beam_size": 2, "n_best": 3}, "a beam of as many or more can give them: beam_size=3"),
        ({"max_steps": 2}, "did you mean 'steps'?"),
    ):
        with pytest.raises(UsageError) as caught:
            glassformer.dry_run("dates", **options)
        assert caught.value.hint == hint


def test_a_run_folder_must_be_one(tmp_path):
    (tmp_path / "ende").mkdir()
    (tmp_path / "ende" / "config.toml").touch()
    assert flags.run_folder(str(tmp_path / "ende")) == tmp_path / "ende"
    for name, message, hint in (
        ("edne", "does not exist", "did you mean 'ende'?"),
        (".", "holds no run", ""),
        ("ende/config.toml", "is not a folder", ""),
    ):
        with pytest.raises(CheckpointError, match=message) as caught:
            flags.run_folder(str(tmp_path / name))
        assert hint in caught.value.hint


OFFERED = {
    "imdb": ({"--beta1", "--model.pooling", "--text.truncate"}, {"--train-file", "--n-dates", "--momentum"}),
    "imdb --optimizer sgd": ({"--momentum", "--weight-decay"}, {"--beta1"}),
    "dates": ({"--n-dates", "--beam-size", "--sample"}, {"--train-file", "--src-lang", "--model.pooling"}),
    "classify": ({"--train-file", "--label-column"}, {"--src-file", "--src-column", "--n-dates", "--top-k"}),
    "pretrain": ({"--text-column", "--top-k", "--init-from"}, {"--label-column", "--src-file", "--word-mask-prob"}),
    "lm": ({"--train-file", "--top-k", "--max-new-tokens"}, {"--src-file", "--text-column", "--beam-size"}),
}


@pytest.mark.parametrize("words", OFFERED)
def test_the_help_of_a_recipe_shows_what_it_can_use(words, cli):
    text = cli("train", *words.split(), "--help").out
    shown = set(re.findall(r"--[a-z0-9.-]+", text))
    offered, hidden = OFFERED[words]
    assert offered <= shown and not hidden & shown
    assert {"--minutes", "--lr", "--out", "--model.n-layers", "--text.max-len"} <= shown


def test_help_shows_every_flag_with_range_default_and_placeholder(cli):
    out = cli("train", "--help").out
    shown = {flag.replace("no-", "") for flag in re.findall(r"--[a-z0-9.-]+", out)}
    assert "glassformer recipes" in out and {flag.name for flag in flags.flags_of(train.Train)} <= shown
    out = " ".join(cli("train", "imdb", "--help").out.replace("│", " ").split())
    assert "--accumulate INT Number of batches whose gradients are accumulated into one step. (≥ 1, default 1)" in out
    assert "--split-seed INT Seed of the held-out split. (in [0, 4294967295], default 0)" in out
    assert "--init-from RUN" in out and "{None}" not in out and "default: " not in out


def test_the_last_flag_of_a_switch_counts_and_settings_of_what_is_chosen_arrive():
    for words, value in (([], True), (["--no-snapshots", "--snapshots"], True), (["--no-snapshots"], False)):
        assert settings_of(*words, recipe="dates").train.snapshots is value
    config = settings_of("--optimizer=sgd", "--momentum=0.5", "--minutes=3", "--limit=7")
    assert config == override(load_recipe("imdb"), {"optimizer": "sgd", "momentum": 0.5, "minutes": 3, "limit": 7})
    assert use.Predict(given={"beam_size": 2, "json": True}).of_configuration() == {"beam_size": 2}


def test_a_run_offers_the_decoding_it_has(cli, runs):
    cli("predict", runs.classify, "--beam-size", "2", "a text").refused("the task classify has no use for --beam-size")
    assert "--beam-size" in cli("predict", runs.translate, "--help").out
    assert "--beam-size" not in cli("evaluate", runs.lm, "--help").out

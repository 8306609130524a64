from __future__ import annotations

import tomllib
import typing
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import Config, DataConfig, TrainConfig
from glassformer.config.recipes import (
    SECTIONS,
    config_from_dict,
    dump_config,
    interval,
    limited_kinds,
    load_recipe,
    override,
    recipe_names,
)
from glassformer.errors import UsageError
from glassformer.tasks import TASKS

RANGES = {
    f"{section}.{name}": interval(kind)
    for section, cls in SECTIONS.items()
    for name, kind in limited_kinds(cls).items()
    if interval(kind)
}
SHIPPED = recipe_names()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_load_stop_and_round_trip(name: str, tmp_path: Path) -> None:
    config = load_recipe(name)
    assert config.recipe == name
    assert config.note
    by_rule = "epochs" in config.auto  # which looks at the data; none goes by the clock
    assert config.train.minutes is None and (by_rule or config.train.steps or config.train.epochs)
    path = tmp_path / "config.toml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_recipe(path) == config
    assert load_recipe(tmp_path) == config  # a run folder


@pytest.mark.row("2.4")
def test_the_tutorial_is_restated_exactly() -> None:
    c = load_recipe("imdb-tutorial")
    assert (c.model.n_layers, c.model.d_model, c.model.n_heads, c.model.d_ff, c.model.dropout) == (1, 128, 8, 2048, 0.1)
    assert (c.model.pooling, c.model.positions, c.model.pre_norm) == ("mean", "sinusoidal", False)
    assert (c.text.tokenizer, c.text.vocab_size, c.text.max_len, c.text.truncate) == ("word", 20000, 200, "head")
    assert (c.train.optimizer, c.train.lr, c.train.batch_size, c.train.epochs) == ("adam", 1e-4, 16, 10)
    assert c.train.schedule == "constant" and c.train.warmup == 0
    assert c.data.use_test_as_validation and "test" in c.note


def test_no_field_has_a_name_twice_and_what_may_be_absent_is() -> None:
    names = [f.name for cls in SECTIONS.values() for f in fields(cls)]
    assert len(names) == len({*names})
    for cls in SECTIONS.values():
        hints = typing.get_type_hints(cls)
        for f in fields(cls):
            optional = type(None) in typing.get_args(hints[f.name])
            assert (f.default is None) == optional, f.name  # None is left out of TOML, so it must be the default


def test_every_number_has_a_range_and_every_range_a_number() -> None:
    numbers = {
        f"{section}.{name}"
        for section, cls in SECTIONS.items()
        for name, kind in typing.get_type_hints(cls).items()
        if {int, float} & set(typing.get_args(kind) or [kind])
    }
    assert numbers == RANGES.keys()


@for_each("key", sorted(RANGES))
def test_numbers_out_of_range_are_named(key: str) -> None:
    section, _, name = key.rpartition(".")
    low, high = RANGES[key][1:-1].split(", ")
    kind = typing.get_type_hints(SECTIONS[section])[name]
    whole = int in {kind, *typing.get_args(kind)}
    below = float(low) - 1 if RANGES[key][0] == "[" else float(low)
    bad = [below] if high == "inf" else [below, float(high) + 1]
    for value in bad + ([] if whole else [float("nan"), float("inf")]):
        with pytest.raises(UsageError, match=rf"{key} must be a (whole )?number in .*; got"):
            config_from_dict({section: {name: int(value) if whole else value}})


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"modle": {}}, "'modle' at the top is not a known key", "did you mean 'model'?"),
        ({"model": {"n_layer": 2}}, r"'n_layer' in \[model\] is not a known key", "did you mean 'n_layers'?"),
        ({"model": {"lr": 2}}, r"'lr' in \[model\]", "it belongs into [train]"),
        ({"lr": 2}, "'lr' at the top", "it belongs into [train]"),
        ({"model": 3}, "must be a table", ""),
        ({"model": {"n_layers": "2"}}, "model.n_layers must be a whole number in \\[1, 1000\\]; got '2'", ""),
        ({"model": {"n_layers": True}}, "model.n_layers must be a whole number in .*; got True", ""),
        ({"model": {"bias": 1}}, "model.bias must be true or false", ""),
        ({"data": {"train_file": 3}}, "data.train_file must be a string", ""),
        ({"model": {"norm": "rsm"}}, "model.norm must be one of layer, rms; got 'rsm'", "did you mean 'rms'?"),
        ({"task": "translation"}, "task must be one of classify, translate, lm", "did you mean 'translate'?"),
        ({"model": {"d_model": 10, "n_heads": 3}}, "10 is not a multiple of model.n_heads 3", "set model.d_head"),
        ({"model": {"d_head": 3, "positions": "rotary"}}, "rotary positions turn pairs", "even"),
        (
            {"data": {"dataset": "imdb", "train_file": "a"}},
            "data.train_file is for files, and data.dataset is imdb",
            "--dataset files",
        ),
        ({"task": "translate", "decode": {"n_best": 9}}, "decode.n_best is 9", "--beam-size 9"),
    ],
    ids=str,
)
def test_a_wrong_recipe_names_the_key(values: dict, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        config_from_dict(values, "mine.toml")
    assert caught.value.message.startswith("mine.toml: ")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (b"task = \n", "no recipe in"),
        (b"note = '\xff'", "no recipe in"),
        (b"task = 'lm'\n[model]\nd_modle = 3", "d_modle"),
        (b"[train]\nepochs = 1\n", "no task is named"),
    ],
    ids=["toml", "utf8", "key", "task"],
)
def test_a_broken_file_is_named(content: bytes, output: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbftask = 'lm'\n")  # a byte order mark is no obstacle
    assert load_recipe(path) == Config(task="lm", recipe="mine")
    path.write_bytes(content)
    with pytest.raises(UsageError, match=output) as caught:
        load_recipe(path)
    assert str(path) in caught.value.message


def test_overrides_find_their_section() -> None:
    base = load_recipe("imdb")
    changed = override(base, {"minutes": 10, "n_heads": 2, "text": {"max_len": 99}, "data_dir": Path("a/b")})
    assert changed == replace(
        base,
        train=replace(base.train, epochs=None, minutes=10.0),  # the budget named replaces the recipe's
        model=replace(base.model, n_heads=2),
        text=replace(base.text, max_len=99),
        data=replace(base.data, data_dir=str(Path("a/b"))),
    )
    assert override(changed, {"minutes": None}).train.minutes is None
    both = override(override(Config(), {"epochs": 10}), {"minutes": 2, "steps": 5, "lr": 0.1}).train
    assert (both.epochs, both.steps, both.minutes) == (None, 5, 2.0), "two that are named both hold"
    of_numpy = override(base, {"lr": np.float64(1e-3), "n_heads": np.int64(2)})  # as a search gives them
    assert (of_numpy.train.lr, of_numpy.model.n_heads) == (1e-3, 2) and type(of_numpy.train.lr) is float


@given(
    note=st.text(st.characters(codec="utf-8")),
    file=st.text(st.characters(codec="utf-8"), min_size=1),
    lr=st.floats(1e-300, 1e300),
    seed=st.integers(0, 2**32 - 1),
    minutes=st.none() | st.floats(1e-9, 1e9),
)
def test_any_configuration_survives_toml(note: str, file: str, lr: float, seed: int, minutes: float | None) -> None:
    import tomllib

    config = override(Config(note=note), {"train_file": file, "lr": lr, "seed": seed, "minutes": minutes})
    assert config_from_dict(tomllib.loads(dump_config(config))) == config


def test_of_what_is_not_chosen_no_setting_is_written() -> None:
    written = tomllib.loads(dump_config(load_recipe("imdb-tutorial")))
    assert written["train"]["beta2"] == 0.999 and not {"weight_decay", "momentum"} & written["train"].keys()
    assert not {"train_file", "src_lang", "n_dates"} & written["data"].keys()


def test_an_optimizer_and_its_settings_are_set_in_one_go() -> None:
    base = override(load_recipe("shakespeare"), {"optimizer": "adamw", "weight_decay": 0.1})
    assert base.train.weight_decay == 0.1
    sgd = override(base, {"momentum": 0.5, "optimizer": "sgd"}).train
    assert sgd.momentum == 0.5 and sgd.weight_decay is None, "what is no longer chosen holds nothing"
    more = override(base, {"beta1": 0.8}).train
    assert (more.beta1, more.weight_decay) == (0.8, 0.1)
    assert override(base, {"train": {"optimizer": "adam", "eps": 1e-6}}).train.eps == 1e-6
    assert override(Config(), {"dataset": "dates", "n_dates": 5}).data == DataConfig(dataset="dates", n_dates=5)


IMDB = load_recipe("imdb")


@pytest.mark.parametrize(
    ("base", "overrides", "message", "hint"),
    [
        (IMDB, {"momentum": 0.9}, "train.momentum is for sgd or muon, and", "--optimizer sgd"),
        (IMDB, {"n_dates": 5}, "data.n_dates is for dates, and data.dataset is imdb", "--dataset dates"),
        (IMDB, {"optimizer": "adm", "eps": 1e-6}, "train.optimizer must be one of", "did you mean 'adam'?"),
        (IMDB, {"minuts": 1}, "minuts", "minutes"),
        (IMDB, {"beam_size": 2}, "the task classify has no use for decode.beam_size", ""),
        (load_recipe("shakespeare"), {"pooling": "max"}, "the task lm has no use for model.pooling", ""),
        (Config(train=TrainConfig(lr=-1)), {}, "train.lr must be a number in", ""),
        (Config(data=DataConfig(limit=0)), {}, "data.limit must be a whole number in", ""),
        (Config(task="sing"), {}, "task must be one of classify, translate, lm", ""),
        (Config(train=TrainConfig(adversarial=0.1, compile=True)), {}, "adversarial and compile cannot", "0"),
        (Config(train=TrainConfig(frozen_layers=1)), {}, "frozen_layers keeps trained weights", "--init-from"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_set_is_refused(base: Config, overrides: dict, message: str, hint: str) -> None:
    """As is a configuration that was made in Python, when it is used."""
    ignores = TASKS[base.task].ignores if base.task in TASKS else frozenset()
    with pytest.raises(UsageError, match=message) as caught:
        override(base, overrides, ignores=ignores)
    assert hint in caught.value.hint


def test_a_task_ignores_what_exists_and_no_shipped_recipe_sets_it() -> None:
    from glassformer.config.recipes import TASK_NAMES
    from glassformer.tasks import TASKS

    assert sorted(TASKS) == sorted(TASK_NAMES)
    keys = {f"{section}.{name}" for section, cls in SECTIONS.items() for name in typing.get_type_hints(cls)}
    assert all(task.ignores <= keys | SECTIONS.keys() for task in TASKS.values())
    for name in SHIPPED:
        config = load_recipe(name)
        for key in TASKS[config.task].ignores:
            value, default = config, Config()
            for part in key.split("."):
                value, default = getattr(value, part), getattr(default, part)
            assert value == default, f"{name} sets {key}, which its task has no use for"

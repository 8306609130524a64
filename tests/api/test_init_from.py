"""A run to initialise from is found alone, in its section, and switched off by None."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.small_runs import SMALL, write_table

import glassformer
from glassformer import api
from glassformer.config import Config
from glassformer.config.recipes import load_recipe


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(folder / "cache"))
        settings = SMALL | {"steps": 1, "train_file": write_table(folder)}
        glassformer.train("classify", out=folder / "run", **settings)
        yield folder / "run"


@pytest.mark.parametrize(
    ("overrides", "uses"),
    [
        ({"init_from": "BASE"}, True),
        ({"train": {"init_from": "BASE"}}, True),
        ({"train": {"init_from": "BASE", "lr": 0.1}}, True),
        ({"train": {"init_from": "BASE"}, "init_from": None}, False),
        ({"init_from": None, "train": {"init_from": "BASE"}}, True),
        ({"init_from": None}, False),
        ({"train": {"init_from": None}}, False),
        ({"train": {"lr": 0.1}}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("recipe_names_it", [True, False])
def test_the_settings_of_a_pretrained_run(
    base: Path, overrides: dict[str, Any], uses: bool | None, recipe_names_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the configuration that training would begin with is looked at."""
    seen = list[Config]()
    recipe = load_recipe("classify")
    if recipe_names_it:
        recipe = replace(recipe, train=replace(recipe.train, init_from=str(base)))
    monkeypatch.setattr(api, "load_recipe", lambda name: recipe)
    monkeypatch.setattr(api, "train_into", lambda config, *_: seen.append(config))
    monkeypatch.setattr(api, "load", lambda _: None)
    changes: dict[str, Any] = {
        name: {key: str(base) if item == "BASE" else item for key, item in value.items()}
        if isinstance(value, dict)
        else str(base)
        if value == "BASE"
        else value
        for name, value in overrides.items()
    }
    glassformer.train("classify", train_file="t.csv", out=base.parent / "new", **changes)
    expected = recipe_names_it if uses is None else uses
    [config] = seen
    assert (config.model.d_model == 16, config.train.init_from) == (expected, str(base) if expected else None)

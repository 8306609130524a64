"""A run to initialise from is found alone, in its section, and switched off by None."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer import api
from glassformer.config.recipes import load_recipe
from glassformer.errors import CheckpointError


@pytest.mark.parametrize(
    ("overrides", "uses"),
    [
        ({"init_from": "BASE"}, True),
        ({"train": {"init_from": "BASE", "lr": 0.1}}, True),
        ({"train": {"init_from": "BASE"}, "init_from": None}, False),
        ({"init_from": None, "train": {"init_from": "BASE"}}, True),
        ({"train": {"init_from": None}}, False),
        ({"train": {"lr": 0.1}}, None),
    ],
)
@pytest.mark.parametrize("recipe_names_it", [True, False])
def test_the_settings_of_a_pretrained_run(
    runs: Runs, overrides: dict[str, Any], uses: bool | None, recipe_names_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the configuration that training would begin with is looked at."""
    base, recipe = str(runs.classify), load_recipe("classify")
    if recipe_names_it:
        recipe = replace(recipe, train=replace(recipe.train, init_from=base))
    monkeypatch.setattr(api, "load_recipe", lambda name: recipe)
    config = api._configured(
        "classify", {"train_file": "t.csv"} | json.loads(json.dumps(overrides).replace("BASE", base))
    )
    expected = recipe_names_it if uses is None else uses
    assert (config.model.d_model == 16, config.train.init_from) == (expected, base if expected else None)


def test_several_folders_are_not_the_one_that_is_expected(cli: Callable) -> None:
    for use in (glassformer.load, lambda name: glassformer.dry_run("classify", init_from=name)):
        with pytest.raises(CheckpointError, match="one run folder is expected, and a,b holds") as error:
            use("a,b")
        assert error.value.hint == "give the folder that out named"
    assert "one run folder is expected, and a,b holds" in cli("train", "classify", "--init-from", "a,b").err

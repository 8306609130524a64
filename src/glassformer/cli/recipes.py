"""`glassformer recipes`: list the shipped recipes, or print one, as its file or resolved."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.cli import flags
from glassformer.config import Config
from glassformer.config.recipes import config_to_dict, dump_config, load_recipe, recipe_names, recipe_text
from glassformer.errors import UsageError
from glassformer.utils import console

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecipesArguments:
    """List the recipes, or print one with its comments, to edit and pass by path."""

    resolved: bool = False
    """Print every setting of the recipe, defaults included, instead of its file."""
    json: bool = False
    """Print JSON instead of a table or TOML."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(RecipesArguments, argv, "recipes")
    arguments = flags.parse(RecipesArguments, flag_args, "recipes [RECIPE]")
    if words[:1] == ["show"]:
        words = words[1:]
    if words:
        name = flags.one_word(words, "recipe", "recipes imdb")
        if arguments.json:
            console.write_json(config_to_dict(load_recipe(name)))
        else:
            text = dump_config(load_recipe(name)) if arguments.resolved else recipe_text(name)
            console.write(text.rstrip("\n"))
        return 0
    if arguments.resolved:
        raise UsageError("--resolved needs a recipe", "as in: glassformer recipes imdb --resolved")
    if arguments.json:
        for name, config in _all_recipes():
            console.write_json({"recipe": name, "task": config.task, "note": config.note})
    else:
        write_recipes()
        train = "train one: glassformer train imdb --out runs/imdb"
        logger.info(f"print one: glassformer recipes imdb        {train}")
    return 0


def write_recipes() -> None:
    """Print a table of the shipped recipes: name, task, data and typical time."""
    console.write_table(
        ("recipe", "task", "data, and time on two CPU cores"), [(n, c.task, c.note) for n, c in _all_recipes()]
    )


def _all_recipes() -> list[tuple[str, Config]]:
    return [(name, load_recipe(name)) for name in recipe_names()]

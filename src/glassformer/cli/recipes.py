"""`glassformer recipes`: what is shipped, or one recipe written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer import console
from glassformer.cli import flags
from glassformer.recipes import config_to_dict, dump_config, load_recipe, recipe_names


@dataclass(frozen=True)
class RecipesArguments:
    """List the recipes; or print one in full, to be edited and passed by path."""

    json: bool = False
    """JSON instead of a table or TOML."""


def run(argv: Sequence[str]) -> int:
    """The verb."""
    words, given = flags.split_words(RecipesArguments, argv, "recipes")
    arguments = flags.parse(RecipesArguments, given, "recipes [RECIPE]")
    if words[:1] == ["show"]:
        words = words[1:]
    if words:
        config = load_recipe(flags.one_word(words, "recipe", "recipes imdb"))
        if arguments.json:
            console.write_json(config_to_dict(config))
        else:
            console.write(dump_config(config).rstrip("\n"))
        return 0
    rows = [(name, config.task, config.note) for name in recipe_names() for config in [load_recipe(name)]]
    if arguments.json:
        for name, task, note in rows:
            console.write_json({"recipe": name, "task": task, "note": note})
    else:
        console.write_table(("recipe", "task", "note"), rows)
        train = "train one: glassformer train imdb --out runs/imdb"
        console.say(f"print one: glassformer recipes imdb        {train}")
    return 0

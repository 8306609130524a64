"""Recipes: a whole run's configuration as a TOML file, shipped here or passed by path.

This module finds, reads and writes them; what a value may be is `checks.py`, where it belongs `places.py`, what is
no setting any more `removed.py`. None of them imports torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from glassformer.config import Config
from glassformer.config.overrides import BUDGETS, config_from_dict, override, remaining_auto, without_budget
from glassformer.config.validation import TASK_NAMES, check_config, config_to_dict, nearest, section_fields
from glassformer.errors import UsageError

__all__ = [
    "BUDGETS",
    "TASK_NAMES",
    "check_config",
    "config_from_dict",
    "config_to_dict",
    "dump_config",
    "load_recipe",
    "nearest",
    "override",
    "recipe_for_files",
    "recipe_names",
    "recipe_text",
    "remaining_auto",
    "section_fields",
    "without_budget",
]

_FOLDER = Path(__file__).parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Return the names of the recipes shipped with the package, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_recipe(name_or_path: str | Path) -> Config:
    """Read a shipped recipe by name (`imdb`), or one of your own by path; of a run folder, its `config.toml`.

    Raises:
        UsageError: there is none, it is not TOML, it names no task, or a key or value in it cannot be used.
    """
    path = _find(str(name_or_path))
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}", "save the recipe as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        hint = "strings need quotes; see: glassformer recipes imdb"
        raise UsageError(f"{path}: not TOML: {error}", hint) from error
    where = f"recipe {path.stem}" if path.parent == _FOLDER else str(path)
    if not values.get("task"):
        raise UsageError(f"{where}: no task is named", f"write task = one of {', '.join(TASK_NAMES)}")
    values = {"recipe": path.stem} | values
    return config_from_dict(values, where, of_a_run=path.name == "config.toml")


def recipe_text(name_or_path: str | Path) -> str:
    """Return the text of a recipe as it was written, comments included; the errors are those of `load_recipe`."""
    load_recipe(name_or_path)
    return _find(str(name_or_path)).read_text(encoding="utf-8-sig")


def dump_config(config: Config) -> str:
    """Return the configuration as TOML, which `load_recipe` reads back unchanged.

    Only the sections of the selected data set and optimizer are written, since the others have no effect.
    """
    import tomli_w

    return tomli_w.dumps(config_to_dict(config))


def recipe_for_files(flag_args: Iterable[str], usage: str) -> str:
    """Return the recipe for the user's own files, by the flags that name them (`--train-file=a.csv`).

    `usage` is shown in the hint.

    Raises:
        UsageError: they do not say it (a TSV may hold labels or pairs).
    """
    values = {name: value for name, _, value in (flag.partition("=") for flag in flag_args)}
    file = Path(values.get("--train-file", ""))
    if values.keys() & {"--src-file", "--src-column", "--tgt-column"}:
        return "translate"
    if values.keys() & {"--label-column", "--text-column"} or file.suffix.lower() == ".csv":
        return "classify"
    if file.suffix.lower() == ".txt" or (file.name and file.is_dir()):
        return "lm"
    hint = f"name it: {', '.join(TASK_NAMES)}, as in: {usage}"
    raise UsageError("the files do not say what they are for", hint)


def _find(name: str) -> Path:
    """Return the file of a recipe's name or path."""
    names, path = recipe_names(), Path(name)
    for candidate in [_FOLDER / f"{name}.toml"] if name in names else [path / "config.toml", path]:
        if candidate.is_file():
            return candidate
    if path.suffix == ".toml" or len(path.parts) > 1 or path.is_dir():
        raise UsageError(f"no recipe at {path}", "a path must lead to a TOML file or to a run folder")
    raise UsageError(f"no recipe is called {name!r}", nearest(name, names) + f"there are: {', '.join(names)}")

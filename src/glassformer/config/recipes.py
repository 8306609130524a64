"""Recipes: a whole run's configuration as a TOML file, shipped here or passed by path, and settings laid over it.

A recipe, flags and settings in Python are one dictionary of plain values by section, in which the settings of the
chosen optimizer or data set stand with the others; it becomes a `Config` and is checked once. A setting may be named
alone: its section is found. No torch is imported here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.config import Config, idle
from glassformer.config.validation import (
    build,
    check_agreement,
    convert,
    homes,
    kinds,
    nearest,
    places,
    sections,
    trained_tasks,
)
from glassformer.errors import UsageError

BUDGETS = ("epochs", "steps", "minutes")
"""What says when a run ends."""
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
    except ValueError as error:  # not UTF-8, or not TOML
        hint = "strings need quotes, as in: glassformer recipes imdb; data is named by --train-file"
        raise UsageError(f"{path}: no recipe in TOML and UTF-8: {error}", hint) from error
    where = f"recipe {path.stem}" if path.parent == _FOLDER else str(path)
    if not values.get("task"):
        raise UsageError(f"{where}: no task is named", f"write task = one of {', '.join(trained_tasks())}")
    values = {"recipe": path.stem} | values
    return config_from_dict(values, where)


def recipe_text(name_or_path: str | Path) -> str:
    """Return the text of a recipe as it was written, comments included; the errors are those of `load_recipe`."""
    load_recipe(name_or_path)
    return _find(str(name_or_path)).read_text(encoding="utf-8-sig")


def config_from_dict(values: dict[str, Any], where: str = "configuration") -> Config:
    """Build a checked configuration from plain values by section; what is left out keeps its default.

    Args:
        values: as `tomllib` reads a recipe.
        where: what to name in errors, usually the file.

    Raises:
        UsageError: an unknown key (with the nearest known one), a wrong type, a value out of its interval, or a setting
            of what is not chosen.
    """
    tables = {name: values[name] for name in sections(Config) if isinstance(values.get(name), dict)}
    placed = {name: _placed(name, table, where) for name, table in tables.items()}
    config = build(Config, values | placed, "", where)
    check_agreement(config, where)
    return config


def override(
    config: Config, overrides: dict[str, Any], where: str = "overrides", ignores: Collection[str] = ()
) -> Config:
    """Return the configuration with some fields changed by name, whichever section they are in; all of it is checked.

    Args:
        config: what to start from.
        overrides: `{"minutes": 10, "train_file": "a.csv", "model": {"n_layers": 2}}`. Any of epochs, steps and minutes
            replaces whatever bounded the run before; another optimizer or data set begins with its own defaults.
            What is set here is no longer chosen automatically (`Config.auto`).
        where: what to name in errors.
        ignores: fields and sections that the task has no use for: `Task.ignores`.

    Raises:
        UsageError: as `config_from_dict`; also a field that what is chosen lacks, or the task ignores.
    """
    changes: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if name in sections(Config) and isinstance(value, dict):
            changes.setdefault(name, {}).update(value)
        elif name in homes():
            changes.setdefault(homes()[name], {})[name] = value
        else:
            raise UsageError(f"{where}: {name!r} is not a field of the configuration", nearest(name, homes()).strip())
    given = {n for table in changes.values() for n, value in table.items() if value is not None or n not in BUDGETS}
    values = config_to_dict(replace(config, auto=remaining_auto(config, given)))
    for section, changed in changes.items():
        for name in changed:
            if {section, *places().get(name, ()), *(f"{place}.{name}" for place in places().get(name, ()))} & {
                *ignores
            }:
                raise UsageError(f"{where}: the task {config.task} has no use for {section}.{name}", "leave it out")
        old, by = values[section], getattr(sections(Config)[section], "chooser", "")
        leaves = set(BUDGETS) if given & set(BUDGETS) else set[str]()
        if changed.get(by, old.get(by)) != old.get(by):
            leaves |= {name for name in old if places()[name] != [section]}
        values[section] = {name: value for name, value in old.items() if name not in leaves} | changed
    return config_from_dict(values, where)


def remaining_auto(config: Config, names_given: Collection[str]) -> tuple[str, ...]:
    """Return the settings still to be chosen automatically once these are given; any budget replaces every budget."""
    named = set(names_given) | (set(BUDGETS) if set(names_given) & set(BUDGETS) else set())
    return tuple(name for name in config.auto if name not in named)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Return a configuration as plain values by section, without what is not chosen and None (TOML has none)."""

    def plain(section: Any) -> dict[str, Any]:
        chosen = [f.name for f in fields(section) if f.name not in idle(section)]
        values = {name: value for name in chosen if (value := getattr(section, name)) is not None}
        inner = [plain(values.pop(name)) for name in chosen if is_dataclass(values.get(name))]
        return values | {name: value for table in inner for name, value in table.items()}

    values = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: plain(value) if is_dataclass(value) else value for name, value in values.items()}


def dump_config(config: Config) -> str:
    """Return the configuration as TOML, which `load_recipe` reads back unchanged.

    Only the sections of the selected data set and optimizer are written, since the others have no effect.
    """
    import tomli_w

    return tomli_w.dumps(config_to_dict(config))


def _find(name: str) -> Path:
    """Return the file of a recipe's name or path."""
    names, path = recipe_names(), Path(name)
    for candidate in [_FOLDER / f"{name}.toml"] if name in names else [path / "config.toml", path]:
        if candidate.is_file():
            return candidate
    if path.suffix == ".toml" or len(path.parts) > 1 or path.is_dir():
        raise UsageError(f"no recipe at {path}", "a path must lead to a TOML file or to a run folder")
    raise UsageError(f"no recipe is called {name!r}", nearest(name, names) + f"there are: {', '.join(names)}")


def _placed(section: str, values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a section's table with the settings of what is chosen in a table of their own, as `Config` has them."""
    kind = sections(Config)[section]
    if not sections(kind):
        return values
    by = kind.chooser
    chosen = convert(values.get(by, getattr(kind, by)), kinds(kind)[by], f"{section}.{by}", where)
    placed, own = dict[str, Any](), dict[str, Any]()
    for key, value in values.items():
        owners = [place.partition(".")[2] for place in places().get(key, ()) if place.startswith(f"{section}.")]
        if key in sections(kind):
            raise UsageError(f"{where}: [{section}.{key}] is no table", f"write its settings into [{section}]")
        if owners and chosen not in owners:
            message = f"{where}: {section}.{key} is for {' or '.join(owners)}, and {section}.{by} is {chosen}"
            raise UsageError(message, f"leave it out, or choose: --{by} {owners[0]}")
        (own if owners else placed)[key] = value
    return placed | ({chosen: own} if own else {})

"""Recipes: a whole run's configuration as a TOML file, shipped here or passed by path, and settings laid over it.

A recipe, flags and settings in Python are one dictionary of plain values, which becomes a `Config` and is checked once.
A setting may be named alone: its section is found, and what belongs to one optimizer or data set goes to the one that
is chosen. No torch is imported here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import asdict, fields, is_dataclass
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
    return config_from_dict(values, where, of_a_run=path.name == "config.toml")


def recipe_text(name_or_path: str | Path) -> str:
    """Return the text of a recipe as it was written, comments included; the errors are those of `load_recipe`."""
    load_recipe(name_or_path)
    return _find(str(name_or_path)).read_text(encoding="utf-8-sig")


def config_from_dict(values: dict[str, Any], where: str = "configuration", *, of_a_run: bool = False) -> Config:
    """Build a checked configuration from nested plain values; what is left out keeps its default.

    Args:
        values: as `tomllib` reads a recipe. What belongs to the chosen data set or optimizer may also stand in [data]
            or [train] itself.
        where: what to name in errors, usually the file.
        of_a_run: a run wrote these; the section of what is not chosen has had no effect, and may be there.

    Raises:
        UsageError: an unknown key (with the nearest known one), a wrong type, a value out of its interval.
    """
    tables = {name: values[name] for name in sections(Config) if isinstance(values.get(name), dict)}
    placed = {name: _placed(name, table, table, where) for name, table in tables.items()}
    config = build(Config, values | placed, "", where)
    check_agreement(config, {} if of_a_run else tables, where)
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
    values = asdict(config)
    given = {n for table in changes.values() for n, value in table.items() if value is not None or n not in BUDGETS}
    if given & set(BUDGETS):
        values["train"] |= dict.fromkeys(BUDGETS)
    values["auto"] = remaining_auto(config, given)
    for section, changed in changes.items():
        kind, old, chosen = sections(Config)[section], values[section], values[section] | changed
        for inner in sections(kind):
            if chosen[kind.chooser] != old[kind.chooser]:
                del old[inner]
        placed = _placed(section, changed, chosen, where)
        _refuse_ignored(section, placed, ignores, config.task, where)
        values[section] = old | {name: _over(old.get(name), value) for name, value in placed.items()}
    built = build(Config, values, "", where)
    check_agreement(built, changes, where)
    return built


def remaining_auto(config: Config, names_given: Collection[str]) -> tuple[str, ...]:
    """Return the settings still to be chosen automatically once these are given; any budget replaces every budget."""
    named = set(names_given) | (set(BUDGETS) if set(names_given) & set(BUDGETS) else set())
    return tuple(name for name in config.auto if name not in named)


def config_to_dict(section: Any) -> dict[str, Any]:
    """Return a configuration as nested plain values, without inactive sections and None (TOML has no such value)."""
    values = {f.name: getattr(section, f.name) for f in fields(section) if f.name not in idle(section)}
    return {
        name: config_to_dict(value) if is_dataclass(value) else value
        for name, value in values.items()
        if value is not None
    }


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


def _refuse_ignored(section: str, values: dict[str, Any], ignores: Collection[str], task: str, where: str) -> None:
    """Refuse settings that a task has no use for."""
    for name, value in values.items():
        key = f"{section}.{name}"
        if section in ignores or key in ignores:
            raise UsageError(f"{where}: the task {task} has no use for {key}", "leave it out")
        if isinstance(value, dict):
            _refuse_ignored(key, value, ignores, task, where)


def _over(old: Any, new: Any) -> Any:
    """Merge nested tables; where both have a plain value, `new` wins."""
    return old | new if isinstance(old, dict) and isinstance(new, dict) else new


def _placed(section: str, values: dict[str, Any], chosen: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a section's table with every key of an inner section moved into it.

    `chosen` (the same table, or the one it is merged over) says which inner sections are selected. A key that the
    selected one does not have is refused.
    """
    kind = sections(Config)[section]
    inner, placed = sections(kind), dict[str, Any]()
    for key, value in values.items():
        owners = [name for name in inner if key in kinds(inner[name])]
        if not owners:
            placed[key] = _over(placed.get(key), value)
            continue
        by = kind.chooser
        name = convert(chosen.get(by, getattr(kind, by)), kinds(kind)[by], f"{section}.{by}", where)
        if name not in owners:
            message = f"{where}: {section}.{key} is for {' or '.join(owners)}, and {section}.{by} is {name}"
            raise UsageError(message, f"leave it out, or choose: --{by} {owners[0]}")
        placed[name] = _over(placed.get(name), {key: value})
    return placed

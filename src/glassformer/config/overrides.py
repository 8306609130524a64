"""Where a setting belongs: a key written flat, or named alone in Python or by a flag, finds its section.

What belongs to one optimizer or data set goes to the section of the one that is chosen; a setting that it
has no use for is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from glassformer.config import Config, idle, validation
from glassformer.config.validation import chooser, sections
from glassformer.errors import UsageError

BUDGETS = ("epochs", "steps", "minutes")
"""What says when a run ends."""


def without_budget(config: Config) -> Config:
    """Return the configuration without a budget, so that one given by the user replaces the recipe's."""
    return replace(config, train=replace(config.train, **dict.fromkeys(BUDGETS)))


def config_from_dict(values: dict[str, Any], where: str = "configuration", *, of_a_run: bool = False) -> Config:
    """Build a checked configuration from nested plain values; what is left out keeps its default.

    Args:
        values: as `tomllib` reads a recipe. What belongs to the chosen data set or optimizer may also stand in [data]
            or [train] itself.
        where: what to name in errors, usually the file.
        of_a_run: a run wrote these; the section of what is not chosen has had no effect, and is dropped.

    Raises:
        UsageError: an unknown key (with the nearest known one), a wrong type, a value out of its interval.
    """
    tables = {name: values[name] for name in sections(Config) if isinstance(values.get(name), dict)}
    placed = {name: _placed(name, table, table, where) for name, table in tables.items()}
    config = validation.build_config(values | placed, where)
    if not of_a_run:
        _refuse_inactive(config, tables, where)
    return config


def override(
    config: Config, overrides: dict[str, Any], where: str = "overrides", ignores: Collection[str] = ()
) -> Config:
    """Return the configuration with some fields changed by name, whichever section they are in.

    A section takes a dictionary.

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
    homes = {field: section for section, names in validation.section_fields().items() for field in names}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if name in sections(Config) and isinstance(value, dict):
            changes.setdefault(name, {}).update(value)
        elif name in homes:
            changes.setdefault(homes[name], {})[name] = value
        else:
            message = f"{where}: {name!r} is not a field of the configuration"
            raise UsageError(message, validation.nearest(name, homes).strip())
    if any(changes.get("train", {}).get(name) is not None for name in BUDGETS):
        config = without_budget(config)
    named = [(name, value) for table in changes.values() for name, value in table.items()]
    names_given = {name for name, value in named if value is not None or name not in BUDGETS}
    config = replace(config, auto=remaining_auto(config, names_given))
    values = validation.config_to_dict(validation.check_config(config, where))
    for section, changed in changes.items():
        kind, old, chosen = sections(Config)[section], values[section], values[section] | changed
        kept = {k: v for k, v in old.items() if k not in sections(kind) or chosen[chooser(kind, k)] == k}
        placed = _placed(section, changed, chosen, where)
        _refuse_ignored(section, placed, ignores, config.task, where)
        values[section] = kept | {name: _over(kept.get(name), value) for name, value in placed.items()}
    built = validation.build_config(values, where)
    _refuse_inactive(built, changes, where)
    return built


def remaining_auto(config: Config, names_given: Collection[str]) -> tuple[str, ...]:
    """Return the settings still to be chosen automatically once these are given; any budget replaces every budget."""
    named = set(names_given) | (set(BUDGETS) if set(names_given) & set(BUDGETS) else set())
    return tuple(name for name in config.auto if name not in named)


def _refuse_inactive(config: Config, tables: dict[str, dict[str, Any]], where: str) -> None:
    """Refuse a section of an optimizer or data set that is not chosen, even at its defaults: it does nothing."""
    for section, table in tables.items():
        part = getattr(config, section)
        for name in idle(part):
            if name in table:
                by = chooser(type(part), name)
                message = f"{where}: [{section}.{name}] is set, and {section}.{by} is {getattr(part, by)}"
                raise UsageError(message, f"leave it out, or choose {name}")


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
    known, inner = {f.name: f for f in fields(kind)}, sections(kind)
    placed: dict[str, Any] = {}
    for key, value in values.items():
        owners = [name for name in inner if key in validation.kinds(inner[name])]
        if not owners:
            placed[key] = _over(placed.get(key), value)
            continue
        chooses = chooser(kind, owners[0])
        name = chosen.get(chooses, getattr(kind(), chooses))
        validation.convert(name, known[chooses], kind, f"{section}.{chooses}", where)
        if name not in owners:
            validation.refuse(section, name, key, where)
        placed[name] = _over(placed.get(name), {key: value})
    return placed

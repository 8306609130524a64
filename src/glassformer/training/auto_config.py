"""Settings that a recipe leaves to the data: the task's rules say them, and a person is told which and why."""

from __future__ import annotations

from dataclasses import replace

from glassformer.config import Config
from glassformer.config.recipes import left_to_fit, override
from glassformer.data.splits import TextData
from glassformer.errors import UsageError
from glassformer.tasks import Task


def fit_to_data(config: Config, kind: type[Task], data: TextData) -> tuple[Config, TextData]:
    """The configuration with nothing left to be found, and the data with a note on what was found.

    A run keeps what was found in its `config.toml`, so it is repeated and resumed without any rule.

    Raises:
        UsageError: a setting is to be found for which the task has no rule.
    """
    config, data = _as_encoded(config, data)
    names = config.fit.split()
    if not names:
        return config, data
    found, reason = kind.suggest_settings(data, config)
    if missing := [name for name in names if name not in found]:
        told = f"the task {kind.name} has no rule for {missing[0]}"
        raise UsageError(told, f"it has rules for: {', '.join(found) or 'nothing'}; set it, or take it out of fit")
    settings = {name: found[name] for name in names}
    shown = ", ".join(f"{name} {value:g}" for name, value in settings.items() if value is not None)
    note = f"{reason}: {shown} (by rule; a setting that you name is yours)"
    return override(config, settings, "rules"), replace(data, notes=[*data.notes, note])


def _as_encoded(config: Config, data: TextData) -> tuple[Config, TextData]:
    """The text settings with which the data was encoded ahead, where it was: its tokenizer is there already."""
    if (shards := data.train.shards) is None:
        return config, data
    taken = shards.text | {"ngrams": 0, "bigrams": 0}
    told = [f"{name} {value}" for name, value in taken.items() if getattr(config.text, name) != value]
    notes = [*data.notes, f"taken over from {shards.path}: {', '.join(told)}"] if told else data.notes
    left = left_to_fit(config, taken)
    return replace(config, text=replace(config.text, **taken), fit=left), replace(data, notes=notes)

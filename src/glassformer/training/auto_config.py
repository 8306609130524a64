"""Choose the settings that a recipe leaves to the size of the data, and note which and why."""

from __future__ import annotations

from dataclasses import replace

from glassformer.config import Config
from glassformer.config.recipes import override, remaining_auto
from glassformer.data.splits import TextData
from glassformer.errors import UsageError
from glassformer.tasks import Task


def apply_auto_config(config: Config, task_type: type[Task], data: TextData) -> tuple[Config, TextData]:
    """Return the configuration with every setting of `config.auto` chosen, and the data with a note on them.

    The run writes the chosen values to its `config.toml`, so that resuming it chooses nothing again.

    Raises:
        UsageError: the task cannot choose one of them automatically.
    """
    config, data = _as_pretokenized(config, data)
    if not config.auto:
        return config, data
    suggested, reason = task_type.suggest_settings(data, config)
    if missing := [name for name in config.auto if name not in suggested]:
        raise UsageError(
            f"the task {task_type.name} cannot choose {missing[0]} automatically",
            f"it can choose: {', '.join(suggested) or 'nothing'}; set {missing[0]}, or remove it from auto",
        )
    settings = {name: suggested[name] for name in config.auto}
    values = ", ".join(f"{name} {value:g}" for name, value in settings.items() if value is not None)
    note = f"{reason}: {values} (chosen automatically; override with flags)"
    return override(config, settings, "auto"), replace(data, notes=[*data.notes, note])


def _as_pretokenized(config: Config, data: TextData) -> tuple[Config, TextData]:
    """Return the configuration with the text settings of pretokenized data, which brings its tokenizer."""
    if (shards := data.train.shards) is None:
        return config, data
    settings = shards.text | {"ngrams": 0, "bigrams": 0}
    changed = [f"{name} {value}" for name, value in settings.items() if getattr(config.text, name) != value]
    notes = [*data.notes, f"taken from {shards.path}: {', '.join(changed)}"] if changed else data.notes
    remaining = remaining_auto(config, settings)
    return replace(config, text=replace(config.text, **settings), auto=remaining), replace(data, notes=notes)

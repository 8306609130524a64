"""The record of what a run was begun with: its settings, and hashes of `data.json` and of the tokenizer.

`env.json` and every checkpoint hold it, so that a run is not resumed with other settings or another record of its data.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from glassformer.config import Config
from glassformer.config.recipes import config_from_dict, config_to_dict
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.records import JsonObject
from glassformer.utils.atomic_io import finite

FORMAT = 2
"""Of the record, and of the state in a checkpoint. Format 1 recorded neither settings nor data."""


def start_record(config: Config, data: JsonObject, tokenizer: str) -> JsonObject:
    """Return the record of a configuration, the content of `data.json` and a tokenizer's SHA-256."""
    text = json.dumps(finite(data), sort_keys=True, allow_nan=False)
    return {
        "format": FORMAT,
        "config": config_to_dict(config),
        "data": hashlib.sha256(text.encode("ascii")).hexdigest(),
        "tokenizer": tokenizer,
    }


def check_start_record(recorded: object, now: JsonObject, where: Path, files: tuple[Path, Path, Path]) -> None:
    """Compare a record read from `where` with that of the run's configuration, data and tokenizer `files` today.

    Raises:
        CheckpointError: they differ; the first setting that does is named.
    """
    start_new, undo = "start a new run; this one can still be read", "restore it, or start a new run"
    if not isinstance(recorded, dict) or type(recorded.get("format")) is not int:
        message = f"{where} does not say what the run was begun with, as files of earlier versions do not"
        raise CheckpointError(message, start_new)
    if recorded["format"] != FORMAT:
        raise CheckpointError(f"{where} has the format {recorded['format']}, not {FORMAT}", start_new)
    was, settings = _flat(_settings(recorded.get("config"), where)), _flat(now["config"])
    for name in sorted(was.keys() | settings.keys()):
        old, new = (json.dumps(values[name])[:100] if name in values else "not set" for values in (was, settings))
        if old != new:
            message = f"{files[0]}: {name} is {new}; the run was begun with {old} ({where})"
            raise CheckpointError(message, undo)
    for name, path in (("data", files[1]), ("tokenizer", files[2])):
        if recorded.get(name) != now[name]:
            raise CheckpointError(f"{path} is not the one that the run was begun with ({where})", undo)


def _settings(recorded: object, where: Path) -> JsonObject:
    """Return recorded settings with the defaults of those that came to this version after them."""
    try:
        config = config_from_dict(
            {"recipe": "", **recorded} if isinstance(recorded, dict) else {}, str(where), of_a_run=True
        )
    except (UsageError, RecursionError) as error:
        message = f"{where} does not hold the settings that the run was begun with: {error}"
        raise CheckpointError(message, "start a new run; this one can still be read") from error
    return config_to_dict(config)


def _flat(settings: Any) -> dict[str, Any]:
    """Return nested settings by their dotted names."""
    flat: dict[str, Any] = {}
    nested = [("", settings)]
    while nested:
        prefix, value = nested.pop()
        if isinstance(value, dict):
            nested += [(f"{prefix}.{name}".removeprefix("."), item) for name, item in value.items()]
        else:
            flat[prefix] = value
    return flat

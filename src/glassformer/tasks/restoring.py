"""Restore the task of a trained model from what its folder says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from glassformer.config.recipes import config_from_dict
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import JsonObject
from glassformer.tasks import Task, task_class


def restore_task(facts: JsonObject, model_folder: Path, folder: RunFolder) -> Task:
    """Return the task that a model folder describes; its data comes from the run's config.toml if that exists."""
    values = {name: facts[name] for name in ("task", "recipe", "text", "model", "decode")}
    config = config_from_dict(values, f"the configuration in {model_folder}")
    config = replace(config, train=replace(config.train, precision=facts.get("precision", "auto")))
    if folder.resumable:
        recipe = folder.read_config()
        config = replace(config, note=recipe.note, data=recipe.data, train=recipe.train)
    return task_class(config.task)(config, RunFolder(model_folder).read_tokenizer(), facts["label_names"])

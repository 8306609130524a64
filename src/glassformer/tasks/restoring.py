"""Restore the task of a trained model from what its folder says, and check that models can answer together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from glassformer.config.recipes import config_from_dict
from glassformer.errors import UsageError
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


def check_joins(runs: Sequence[tuple[Path, Task]], other: Path, task: Task) -> None:
    """Check that a run can answer together with others.

    Args:
        runs: the folders and tasks of the others.
        other: the folder of the run.
        task: its task.

    Raises:
        UsageError: the run is among the others already, or its answers are not of the same tokens, or classes.
    """
    if other.resolve() in [path.resolve() for path, _ in runs]:
        raise UsageError(f"{other} is named twice", "name each run once: a folder of seeds is its best run")
    path, ours = runs[0]
    for what, same in (
        ("task", ours.name == task.name),
        ("tokenizer", ours.tokenizer.sha256 == task.tokenizer.sha256),
        ("classes", ours.label_names == task.label_names),
        ("longest text (text.max_len)", ours.config.text.max_len == task.config.text.max_len),
    ):
        if not same:
            message = f"{other} cannot answer together with {path}: its {what} is another"
            raise UsageError(message, "join runs of one recipe on the same data")

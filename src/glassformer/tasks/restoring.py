"""Restore the task and the weights of a trained model, and check that models can answer together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from glassformer.config import Config
from glassformer.config.recipes import config_from_dict
from glassformer.errors import CheckpointError, GlassformerError, UsageError
from glassformer.models.build import without_memory
from glassformer.runs.folder import LEARNED_RECORD, MODEL_CONFIG, RunFolder, SeedsFolder
from glassformer.runs.model_folder import Shapes, Weights, check_shapes, read_description, read_weights, shapes_of
from glassformer.runs.records import JsonObject
from glassformer.tasks import Task, task_class
from glassformer.text.answers import THRESHOLD, Decision
from glassformer.utils.safe_read import read_json_object

DAMAGE = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
"""Errors of a configuration in which something is missing, of another type, or beyond 64 bits."""
MAX_POSITIONS = 1 << 25
"""Most numbers in tables of positions, which are computed and not in the weights, beyond the number of weights."""


def load_model_folder(folder: RunFolder) -> tuple[Task, Weights]:
    """Return the task and the weights of a run folder, or of a model folder alone, after all checks.

    Raises:
        CheckpointError: a file is missing or damaged, the tokenizer is another model's, or the configuration describes
            another model than its weights are of.
    """
    model_folder = folder.require_model_folder()
    facts, found = read_description(model_folder)
    where = model_folder / MODEL_CONFIG
    try:
        task = _restore_task(facts, where, folder)
        _check_described(task, found)
    except (*DAMAGE, UsageError, CheckpointError) as error:
        what = error.message if isinstance(error, GlassformerError) else f"{type(error).__name__} {error}"[:200]
        named = what if str(model_folder) in what else f"{where}: {what}"
        raise CheckpointError(named, "copy model folders whole; their files belong together") from error
    return task, read_weights(model_folder)


def _restore_task(facts: JsonObject, where: Path, folder: RunFolder) -> Task:
    """Return the task that a model folder describes; its data comes from the run's settings if there are any."""
    settings = {name: facts[name] for name in ("task", "recipe", "text", "model", "decode")}
    config = config_from_dict(settings | {"train": {"precision": facts["precision"]}}, str(where))
    if (recipe := settings_of(folder)) is not None:
        config = replace(config, note=recipe.note, data=recipe.data, train=recipe.train)
    tokenizer, names = RunFolder(where.parent).read_tokenizer(), facts["label_names"]
    if tokenizer.vocab_size != facts["vocab_size"]:
        raise CheckpointError(f"the tokenizer has {tokenizer.vocab_size:,} tokens, not {facts['vocab_size']}")
    if names is not None and names != [*dict.fromkeys(map(str, names))]:
        raise CheckpointError("label_names should be a list of different names")
    task = task_class(config.task)(config, tokenizer, names)
    task.decision = Decision.from_json(facts.get("decision"), names, where)
    return task


def _check_described(task: Task, found: Shapes) -> None:
    """Compare the shapes of the weights with those of the task's model, which is built without memory.

    The number of modules and the tables of positions take time and memory even so, and are bounded by the weights.
    """
    config, n_weights = task.config.model, sum(map(math.prod, found.values()))
    n_positions = task.config.text.max_len * config.d_model * config.ensemble_size
    if config.n_layers * config.ensemble_size > len(found) or n_positions > max(MAX_POSITIONS, n_weights):
        raise CheckpointError(f"{config.n_layers:,} layers for {task.config.text.max_len:,} tokens have more weights")
    with without_memory():
        check_shapes(shapes_of(task.build_model()), found)


SETTINGS = "config"
"""Key of the settings in `learned.json`: those with which the run was trained whose model learned an answer."""


def settings_of(folder: RunFolder) -> Config | None:
    """Return the settings with which the weights of a folder were trained, here or before steps of learning.

    None for an import and for a model folder alone, which name neither data nor an optimizer.

    Raises:
        CheckpointError: the settings are damaged.
    """
    path = folder.path / LEARNED_RECORD
    if folder.resumable or not path.is_file():
        return folder.read_config() if folder.resumable else None
    try:
        return config_from_dict(read_json_object(path)[SETTINGS], str(path))
    except (*DAMAGE, UsageError) as error:
        raise CheckpointError(f"{path} does not say how the model was trained", "restore it from a copy") from error


def restore_begun_task(folder: RunFolder) -> Task:
    """Return the task of a run that was begun, from what was written before its first step.

    Raises:
        CheckpointError: something is missing or damaged.
        UsageError: there is no such task.
    """
    config, tokenizer, data = folder.read_config(), folder.read_tokenizer(), folder.read_data()
    task = task_class(config.task)(config, tokenizer, data.label_names)
    task.decision = Decision.from_json(data.scale, data.label_names, folder.data)
    return task


def decision_together(seeds: Path, runs: Sequence[tuple[Path, Task]]) -> Decision:
    """Return from what several runs answer together: what validation chose for all seeds of a folder, if they are.

    Otherwise the mean of their thresholds, in whatever order they are named, and no temperature, which is fitted to
    answers that no run alone gives.

    Raises:
        UsageError: they cannot answer together, see `check_joins`.
    """
    for i, other in enumerate(runs[1:], start=1):
        check_joins(runs[:i], *other)
    folder, (_, task) = SeedsFolder(seeds), runs[0]
    if folder.exists and {run.path.resolve() for run in folder.finished} == {path.resolve() for path, _ in runs}:
        scored = folder.read_ensemble()
        if scored and "decision" in scored.scores:
            return Decision.from_json(scored.scores["decision"], task.label_names, folder.ensemble)
    known = [each.decision.thresholds for _, each in runs]  # None: of an import, whose labels are all cut at one half
    mean = np.mean([one or [THRESHOLD] * len(task.label_names or ()) for one in known], axis=0).tolist()
    return replace(task.decision, thresholds=mean if any(known) else None, temperature=None)


def check_joins(runs: Sequence[tuple[Path, Task]], other: Path, task: Task) -> None:
    """Check that a run can answer together with others.

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
        ("mean and standard deviation of the training numbers", ours.decision.scale == task.decision.scale),
        ("longest text (text.max_len)", ours.config.text.max_len == task.config.text.max_len),
    ):
        if not same:
            message = f"{other} cannot answer together with {path}: its {what} is another"
            raise UsageError(message, "join runs of one recipe on the same data")

"""Which weights are looked at: the run's model, or a snapshot or checkpoint it left on the way.

Checkpoints of a run hold weights, optimizer and more (`training/state.py`); only the weights that the run would
have predicted with at that time are read here. Snapshots hold just these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable
from weakref import WeakValueDictionary

import torch
from torch import nn

from glassformer.errors import CheckpointError, UsageError
from glassformer.files import read_json
from glassformer.runs.checkpoints import STATE, TENSORS, checkpoints, load_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import WEIGHTS as MODEL_WEIGHTS
from glassformer.runs.sealed_folder import sealed_sha256
from glassformer.runs.snapshots import WEIGHTS, load_snapshot, snapshots
from glassformer.tasks import Task
from glassformer.training.state import Weights, load_weights

MODEL = "model"
"""Name of the weights that validated best, those `glassformer predict` uses."""
_NAME = re.compile(r"step-([0-9]{8})")


class CheckpointInfo(TypedDict):
    """A set of weights, and the update at which they stood."""

    name: str
    step: int | None


@runtime_checkable
class Subject(Protocol):
    """What is explained: a model with its task; a `Run` is one."""

    @property
    def path(self) -> Path:
        """The run folder; it need not exist."""
        ...

    @property
    def task(self) -> Task:
        """Its tokenizer and configuration."""
        ...

    @property
    def model(self) -> nn.Module:
        """In evaluation mode."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        ...


@dataclass(frozen=True, eq=False)
class LoadedSubject:
    """A subject with the weights of a checkpoint, or one model of an ensemble: of another subject's task and device."""

    of: Subject
    model: nn.Module

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.of.path

    @property
    def task(self) -> Task:
        """Its tokenizer and configuration."""
        return self.of.task

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.of.device


_loaded: WeakValueDictionary[tuple[Any, ...], LoadedSubject] = WeakValueDictionary()
"""What is in use, by its run's identity (which it keeps alive) and its file's state: explanations of a checkpoint
share one model."""


def list_checkpoints(subject: Subject) -> list[CheckpointInfo]:
    """Every set of weights there is, oldest first, "model" last."""
    steps = sorted(_folders(subject).items())
    found: list[CheckpointInfo] = [{"name": folder.name, "step": step} for step, folder in steps]
    return [*found, {"name": MODEL, "step": checkpoint_step(subject, MODEL)}]


def with_checkpoint(subject: Subject, name: str) -> Subject:
    """The subject with other weights: the moving average of that time, where training kept one.

    Raises:
        UsageError: the run has no checkpoint of this name.
        CheckpointError: it is damaged, or of another model.
    """
    if name == MODEL:
        return subject
    match = _NAME.fullmatch(name)
    folder = _folders(subject).get(int(match[1])) if match else None
    if folder is None:
        known = ", ".join(item["name"] for item in list_checkpoints(subject))
        raise UsageError(f"this run has no checkpoint {name!r}", f"there are {known}")
    file = folder / (WEIGHTS if _is_snapshot(folder) else TENSORS)
    state = file.stat() if file.exists() else None
    key = id(subject), folder, state and (state.st_mtime_ns, state.st_size)
    if found := _loaded.get(key):
        return found
    model = subject.task.build_model()
    load_weights(model, _weights(folder, subject.task.tokenizer.sha256))
    return _loaded.setdefault(key, LoadedSubject(subject, model.to(subject.device).eval()))


def checkpoint_step(subject: Subject, name: str) -> int | None:
    """The update at which these weights stood, where the run's folder tells."""
    if match := _NAME.fullmatch(name):
        return int(match[1])
    found = checkpoints(RunFolder(subject.path).checkpoints)
    if not found:
        return None
    try:
        best = read_json(found[-1] / STATE)["progress"]["best_step"]
    except (CheckpointError, KeyError, TypeError):
        return None
    return best if isinstance(best, int) and best > 0 else None


def checkpoint_sha256(subject: Subject, name: str) -> str | None:
    """SHA-256 of the file that holds these weights, as its folder's manifest has it."""
    if match := _NAME.fullmatch(name):
        folder = _folders(subject).get(int(match[1]))
        file = WEIGHTS if folder and _is_snapshot(folder) else TENSORS
    else:
        folder, file = RunFolder(subject.path).model_folder, MODEL_WEIGHTS
    return folder and sealed_sha256(folder, file)


def _folders(subject: Subject) -> dict[int, Path]:
    """Where the weights after each update are; of a snapshot and a checkpoint, the snapshot, a third of it."""
    run = RunFolder(subject.path)
    saved = checkpoints(run.checkpoints)
    found = {int(match[1]): path for path in saved if (match := _NAME.fullmatch(path.name))}
    return found | dict(snapshots(run.snapshots))


def _is_snapshot(folder: Path) -> bool:
    return folder.parent == RunFolder(folder.parent.parent).snapshots


def _weights(folder: Path, tokenizer_sha256: str) -> Weights:
    """The weights to predict with that a snapshot or a checkpoint holds."""
    if _is_snapshot(folder):
        return load_snapshot(folder)
    tensors, state = load_checkpoint(folder)
    if state.get("tokenizer") != tokenizer_sha256:
        raise CheckpointError(f"{folder} was trained with another tokenizer than this model's")
    groups = [
        {name.partition(":")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{group}:")}
        for group in ("ema", "model")
    ]
    return groups[0] or groups[1]

"""Load the weights to explain: the run's selected model, or one of its snapshots and checkpoints.

Of a checkpoint, which holds optimizer state and more, only the weights that the run would have predicted with at that
time are read; a snapshot holds nothing else.
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
from glassformer.models.ensemble import member_of
from glassformer.runs.checkpoints import (
    STATE,
    TENSORS,
    WEIGHTS,
    checkpoint_folders,
    load_checkpoint,
    load_snapshot,
    snapshot_folders,
)
from glassformer.runs.folder import BEGUN, RunFolder
from glassformer.runs.model_folder import WEIGHTS as MODEL_WEIGHTS
from glassformer.runs.model_folder import Weights, load_weights
from glassformer.runs.records import StartRecord
from glassformer.runs.sealed_folder import sealed_sha256
from glassformer.tasks import Task
from glassformer.text.pairs import text_of
from glassformer.utils.safe_read import dataclass_from_json, read_json

MODEL = "model"
"""Name of the weights with the best validation score, those `glassformer predict` uses."""
_NAME = re.compile(r"step-([0-9]{8})")


class CheckpointInfo(TypedDict):
    """A saved set of weights, and its training step."""

    name: str
    step: int | None


@runtime_checkable
class Subject(Protocol):
    """The model that is explained, with its task; a `Run` is one.

    Attributes:
        path: the run folder, which need not exist.
        task: the task, with tokenizer and configuration.
        model: the model, in evaluation mode.
        device: the model's device.
    """

    @property
    def path(self) -> Path: ...

    @property
    def task(self) -> Task: ...

    @property
    def model(self) -> nn.Module: ...

    @property
    def device(self) -> torch.device: ...


@dataclass(frozen=True, eq=False)
class LoadedSubject:
    """A subject whose model is replaced: by a checkpoint's weights, one model of its ensemble, or one of its labels.

    `own_task` is the task of the model where it is another than the run's.
    """

    base: Subject
    model: nn.Module
    own_task: Task | None = None

    @property
    def path(self) -> Path:
        return self.base.path

    @property
    def task(self) -> Task:
        return self.own_task or self.base.task

    @property
    def device(self) -> torch.device:
        return self.base.device


_loaded: WeakValueDictionary[tuple[Any, ...], LoadedSubject] = WeakValueDictionary()
"""Checkpoints in use, by the identity of their run (which they keep alive) and the state of their file, so that
explanations of one checkpoint share a model."""


def list_checkpoints(subject: Subject) -> list[CheckpointInfo]:
    """Return every saved set of weights, oldest first, "model" last."""
    steps = sorted(_folders(subject).items())
    infos: list[CheckpointInfo] = [{"name": folder.name, "step": step} for step, folder in steps]
    return [*infos, {"name": MODEL, "step": checkpoint_step(subject, MODEL)}]


def with_checkpoint(subject: Subject, name: str) -> Subject:
    """Return the subject with the weights of a checkpoint: their moving average, where training kept one."""
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
    if loaded := _loaded.get(key):
        return loaded
    model = subject.task.build_model()
    load_weights(model, _weights(folder, subject.task.tokenizer.sha256))
    return _loaded.setdefault(key, LoadedSubject(subject, model.to(subject.device).eval()))


def with_member(subject: Subject, member: int) -> Subject:
    """Return the subject with one model of its ensemble, counted from 1; raises as `member_of`."""
    model = member_of(subject.model, member)
    return subject if model is subject.model else LoadedSubject(subject, model)


def optimizer_state(subject: Subject, name: str) -> Weights | None:
    """Return the optimizer's tensors of a checkpoint, by the names of `optimizer_tensors`.

    None for weights without such a state: the finished model, a snapshot alone, and a moving average, which the
    optimizer did not step on. Where there is a snapshot of the same step, the checkpoint has the same weights.
    """
    saved = {path.name: path for path in checkpoint_folders(RunFolder(subject.path).checkpoints)}
    if (folder := saved.get(name)) is None:
        return None
    tensors, _ = load_checkpoint(folder)
    if any(full_name.startswith("ema:") for full_name in tensors):
        return None
    return {n.removeprefix("optimizer:"): t for n, t in tensors.items() if n.startswith("optimizer:")} or None


def checkpoint_step(subject: Subject, name: str) -> int | None:
    """Return the training step of these weights, or None where the run folder does not record it."""
    if match := _NAME.fullmatch(name):
        return int(match[1])
    saved = checkpoint_folders(RunFolder(subject.path).checkpoints)
    if not saved:
        return None
    try:
        best = read_json(saved[-1] / STATE)["progress"]["best_step"]
    except (CheckpointError, KeyError, TypeError):
        return None
    return best if isinstance(best, int) and best > 0 else None


N_EXAMPLES = 6
EXAMPLE_TEXTS = {
    "dates": [
        "[en_US] Monday, November 16, 2026",
        "[de_DE] 16. November 2026",
        "[fr_FR] 16/11/2026",
        "[zh_CN] 2026年11月16日",
    ],
    "imdb": [
        "A wonderful little film: funny, warm and beautifully acted.",
        "Not bad at all, I was pleasantly surprised.",
        "I wanted to love it, but two hours of my life are gone and I will never get them back.",
    ],
    "shakespeare": ["ROMEO:\n", "To be, or not to be"],
}
"""Example texts of data sets whose own are too long, or too similar, to be examples."""


def examples(subject: Subject) -> list[str]:
    """Return a few example texts: of the data set, then the shortest of those the run was evaluated on."""
    try:
        evaluation = RunFolder(subject.path).read_evaluation()
        rows = evaluation.examples if evaluation else []
        texts = [str(row["prompt"] if "prompt" in row else text_of(row)) for row in rows]
    except (CheckpointError, KeyError, TypeError):
        texts = []
    short_texts = EXAMPLE_TEXTS.get(subject.task.config.data.dataset or "", [])
    evaluated = [text for text in sorted(set(texts), key=lambda text: (len(text), text)) if text.strip()]
    return [*short_texts, *evaluated][:N_EXAMPLES]


def checkpoint_sha256(subject: Subject, name: str) -> str | None:
    """Return the SHA-256 of the file that holds these weights, from the manifest of its folder."""
    if match := _NAME.fullmatch(name):
        folder = _folders(subject).get(int(match[1]))
        file = WEIGHTS if folder and _is_snapshot(folder) else TENSORS
    else:
        folder, file = RunFolder(subject.path).model_folder, MODEL_WEIGHTS
    return folder and sealed_sha256(folder, file)


def _folders(subject: Subject) -> dict[int, Path]:
    """Return the folder of the weights of each step: the snapshot where there is a checkpoint too, as it is smaller."""
    run = RunFolder(subject.path)
    names = ((_NAME.fullmatch(path.name), path) for path in checkpoint_folders(run.checkpoints))
    return {int(match[1]): path for match, path in names if match} | dict(snapshot_folders(run.snapshots))


def weights_of(run: RunFolder, name: str, tokenizer_sha256: str) -> Weights:
    """Return the weights to predict with of a snapshot or checkpoint by name, the snapshot where there are both.

    Raises:
        CheckpointError: it is damaged, or was trained with another tokenizer.
    """
    snapshot = run.snapshots / name
    return _weights(snapshot if snapshot.is_dir() else run.checkpoints / name, tokenizer_sha256)


def _is_snapshot(folder: Path) -> bool:
    return folder.parent == RunFolder(folder.parent.parent).snapshots


def _weights(folder: Path, tokenizer_sha256: str) -> Weights:
    """Return the weights to predict with from a snapshot or a checkpoint."""
    if _is_snapshot(folder):
        return load_snapshot(folder)
    tensors, state = load_checkpoint(folder)
    if dataclass_from_json(StartRecord, state.get(BEGUN), folder).tokenizer != tokenizer_sha256:
        raise CheckpointError(f"{folder} was trained with another tokenizer than this model's")
    groups = [
        {name.partition(":")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{group}:")}
        for group in ("ema", "model")
    ]
    return groups[0] or groups[1]

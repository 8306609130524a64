"""Load the weights to explain: the run's selected model, or one of its snapshots and checkpoints.

Of a checkpoint, which holds optimizer state and more, only the weights that the run would have predicted with at that
time are read; a snapshot holds nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable
from weakref import WeakValueDictionary

import torch
from torch import nn

from glassformer.errors import CheckpointError, UsageError
from glassformer.models.ensemble import Ensemble, member_of
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import STATE, TENSORS, Weights, load_checkpoint, load_weights, step_folders
from glassformer.runs.model_folder import WEIGHTS as MODEL_WEIGHTS
from glassformer.runs.sealed_folder import MANIFEST, Manifest
from glassformer.tasks import Task
from glassformer.text.answers import THRESHOLD
from glassformer.text.pairs import text_of
from glassformer.utils.formatting import shortened
from glassformer.utils.safe_read import read_json

MODEL = "model"
"""Name of the weights with the best validation score, those `glassformer predict` uses."""
_NAME = re.compile(r"step-([0-9]{8})")


class Answer(TypedDict):
    """The model's output in one line, with its probability."""

    headline: str
    """A class, a number, a translation, a continuation; of a bare encoder the first numbers of its vector."""
    detail: str
    """Its probability in percent, or its log-probability; of a vector its length; of a number mean + sd × output."""


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


@dataclass(frozen=True)
class LabelChoice:
    """One of several labels, or one of the words of a text, as all models of an ensemble together see it."""

    name: str
    """Of a word its number, the word and its tag."""
    probability: float
    """Of the label, or of the word's tag."""
    threshold: float | None
    """From this probability on a label is answered; null for a word."""
    word: str | None = None
    """The word; null for a label."""


@dataclass(frozen=True)
class Labels:
    """The labels of a text, in the order of the model, or its words, and which of them is looked at."""

    shown: int
    """Its index."""
    each: list[LabelChoice]

    def about(self, answer: Answer) -> Answer:
        """Return an answer with the word that it is about; of a label with the threshold from which it is answered."""
        choice = self.each[self.shown]
        if choice.word is not None:
            detail = f"{answer['detail']}, word {self.shown + 1} “{shortened(choice.word, 40)}”"
        elif choice.threshold != THRESHOLD:  # `predict` may answer it below one half
            detail = f"{answer['detail']}; {choice.name} is answered from {100 * (choice.threshold or 0):.1f}% on"
        else:
            return answer
        return {"headline": answer["headline"], "detail": detail}


@dataclass(frozen=True, eq=False)
class Look:
    """What is looked at of a model with several answers, fixed once for a text: one label, or the tag of one word.

    Attributes:
        name: the label, or the number of the word, as a request names it.
        task: the task of one answer.
        of: returns the classifier of that answer, which shares the parameters of a model.
        labels: all answers.
    """

    name: str
    task: Task
    of: Callable[[nn.Module], nn.Module]
    labels: Labels


@dataclass(frozen=True, eq=False)
class View:
    """A subject: one model of a run with some weights, and of several labels or words one.

    Attributes:
        run: the run that was asked.
        checkpoint: the name of the weights.
        weights: the model of the run with these weights, of all members and all answers.
        member: which model of an ensemble, counted from 0.
        look: which answer, where a model gives several.
        other: a model in the place of this one, such as one that has learned.
    """

    run: Subject
    checkpoint: str
    weights: nn.Module
    member: int = 0
    look: Look | None = None
    other: nn.Module | None = None

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def device(self) -> torch.device:
        return self.run.device

    @property
    def task(self) -> Task:
        return self.look.task if self.look else self.run.task

    @property
    def whole(self) -> nn.Module:
        """Return the model of this member, with all its answers."""
        return member_of(self.weights, self.member)

    @property
    def model(self) -> nn.Module:
        return self._model

    @cached_property
    def _model(self) -> nn.Module:
        return self.other or self._one(self.whole)

    @cached_property
    def together(self) -> View | None:
        """Return all members of an ensemble as one model, with this one in its place; None for a single model."""
        if not isinstance(self.weights, Ensemble):
            return None
        members = [self._one(member) for member in self.weights.members]
        members[self.member] = self.model
        return replace(self, other=Ensemble(members).eval())

    def _one(self, model: nn.Module) -> nn.Module:
        return self.look.of(model).eval() if self.look else model

    def at(self, checkpoint: str) -> View:
        """Return the same view of other weights."""
        return replace(self, checkpoint=checkpoint, weights=weights_at(self.run, checkpoint), other=None)


_loaded: WeakValueDictionary[tuple[Any, ...], nn.Module] = WeakValueDictionary()
"""Models of checkpoints in use, by the identity of their run and the state of their file, so that explanations share
them."""


def list_checkpoints(subject: Subject) -> list[CheckpointInfo]:
    """Return every saved set of weights, oldest first, "model" last."""
    return [*saved_weights(RunFolder(subject.path)), {"name": MODEL, "step": checkpoint_step(subject, MODEL)}]


def saved_weights(run: RunFolder) -> list[CheckpointInfo]:
    """Return the snapshots and checkpoints of a run, oldest first."""
    return [{"name": folder.name, "step": step} for step, folder in sorted(weight_folders(run).items())]


def weights_at(subject: Subject, name: str) -> nn.Module:
    """Return the model of a run with the weights of a checkpoint: their moving average, where training kept one."""
    if name == MODEL:
        return subject.model
    match = _NAME.fullmatch(name)
    folder = weight_folders(RunFolder(subject.path)).get(int(match[1])) if match else None
    if folder is None:
        known = ", ".join(item["name"] for item in list_checkpoints(subject))
        raise UsageError(f"this run has no checkpoint {name!r}", f"there are {known}")
    file = folder / TENSORS
    state = file.stat() if file.exists() else None
    key = id(subject), folder, state and (state.st_mtime_ns, state.st_size)
    if loaded := _loaded.get(key):
        return loaded
    model = subject.task.build_model()
    load_weights(model, weights_of(RunFolder(subject.path), name))
    return _loaded.setdefault(key, model.to(subject.device).eval())


def checkpoint_step(subject: Subject, name: str) -> int | None:
    """Return the training step of these weights, or None where the run folder does not record it."""
    if match := _NAME.fullmatch(name):
        return int(match[1])
    saved = [*step_folders(RunFolder(subject.path).checkpoints).values()]
    if not saved:
        return None
    try:
        best = read_json(saved[-1] / STATE)["progress"]["best_step"]
    except (CheckpointError, KeyError, TypeError):
        return None
    return best if isinstance(best, int) and best > 0 else None


N_EXAMPLES = 6


def examples(subject: Subject) -> list[str]:
    """Return a few example texts, the shortest of those the run was evaluated on."""
    try:
        evaluation = RunFolder(subject.path).read_evaluation()
        rows = evaluation.examples if evaluation else []
        texts = [str(row["prompt"] if "prompt" in row else text_of(row)) for row in rows]
    except (CheckpointError, KeyError, TypeError):
        texts = []
    return [text for text in sorted(set(texts), key=lambda text: (len(text), text)) if text.strip()][:N_EXAMPLES]


def checkpoint_sha256(subject: Subject, name: str) -> str | None:
    """Return the SHA-256 of the file that holds these weights, from the manifest of its folder."""
    if match := _NAME.fullmatch(name):
        folder, file = weight_folders(RunFolder(subject.path)).get(int(match[1])), TENSORS
    else:
        folder, file = RunFolder(subject.path).model_folder, MODEL_WEIGHTS
    sealed = folder and read_json(folder / MANIFEST, kind=Manifest).files.get(file)
    return sealed and sealed.sha256


def weight_folders(run: RunFolder) -> dict[int, Path]:
    """Return the folder of the weights of each step: the snapshot where there is a checkpoint too, as it is smaller."""
    return step_folders(run.checkpoints) | step_folders(run.snapshots)


def weights_of(run: RunFolder, name: str) -> Weights:
    """Return the weights to predict with of a snapshot or checkpoint by name, the snapshot where there are both.

    Raises:
        CheckpointError: it is damaged.
    """
    snapshot = run.snapshots / name
    if snapshot.is_dir():
        return load_checkpoint(snapshot)[0]
    return checkpoint_weights(run.checkpoints / name, "ema") or checkpoint_weights(run.checkpoints / name, "model")


def checkpoint_weights(folder: Path, group: str) -> Weights:
    """Return a group of weights in a checkpoint, such as "best", those of the best validation; empty without it."""
    tensors, _ = load_checkpoint(folder)
    return {key.partition(":")[2]: tensor for key, tensor in tensors.items() if key.startswith(f"{group}:")}

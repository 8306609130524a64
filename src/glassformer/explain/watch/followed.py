"""The model of a run that may still train, as far as it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from glassformer.errors import UsageError
from glassformer.explain.subject import Subject, checkpoint_weights, weights_of
from glassformer.explain.watch.training import Training, saved_weights
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import load_weights, step_folders
from glassformer.tasks import Task
from glassformer.tasks.restoring import load_model_folder, restore_begun_task


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A subject that is read from a run folder; `source` names what it was read from."""

    path: Path
    task: Task
    model: nn.Module
    device: torch.device
    source: str


class NoWeights(UsageError):
    """Nothing of a run is saved yet that could be explained."""


class Followed:
    """A run that is followed: its training, and the newest model that can be explained.

    Args:
        path: the run folder.
        device: where models compute.
        may_write: whether the training may be paused and stopped.
    """

    def __init__(self, path: Path, device: torch.device, may_write: bool = False) -> None:
        self.path, self.device = path, device
        self.training = Training(path, may_write)
        self._model: SavedModel | None = None

    def subject(self) -> Subject:
        """Return the finished model, or else the best weights so far, or else the newest that are saved.

        Raises:
            NoWeights: nothing is saved yet.
            CheckpointError: what is saved is damaged.
        """
        source = self._newest()
        if source is None:
            if self._model is not None:  # its folder has gone
                return self._model
            raise NoWeights(
                f"{self.path.name} has no weights yet",
                "they come with the first snapshot or checkpoint; the screen Training shows what is logged before",
            )
        if self._model is None or self._model.source != source:
            self._model = self._load(source)
        return self._model

    def _newest(self) -> str | None:
        folder = RunFolder(self.path)
        if folder.model_folder is not None:
            return "model"
        checkpoints, saved = [*step_folders(folder.checkpoints).values()], saved_weights(folder)
        return checkpoints[-1].name if checkpoints else saved[-1]["name"] if saved else None

    def _load(self, source: str) -> SavedModel:
        folder = RunFolder(self.path)
        if source == "model":
            task, weights = load_model_folder(folder)
        else:
            task, checkpoint = restore_begun_task(folder), folder.checkpoints / source
            best = checkpoint_weights(checkpoint, "best") if checkpoint.is_dir() else {}
            weights = best or weights_of(folder, source)
        model = task.build_model()
        load_weights(model, weights)
        return SavedModel(self.path, task, model.to(self.device).eval(), self.device, source)

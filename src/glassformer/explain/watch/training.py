"""The training of a run as a page shows it while it runs, and afterwards: curves, state, findings, snapshots, model.

Everything is read from the run folder, and nothing of it is written but `control.json`, where that is allowed. Of a
log that grows only what came since the last look is read; one that was replaced, as where a run is resumed, is read
again.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypedDict

import torch
from torch import nn

from glassformer.config import Config
from glassformer.data.diagnostics import Finding
from glassformer.errors import UsageError
from glassformer.explain.subject import CheckpointInfo, Subject, checkpoint_weights, saved_weights, weights_of
from glassformer.report.findings import diagnose
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import GO_ON, PAUSE, Control, ControlFile, RunFolder, is_locked
from glassformer.runs.model_folder import load_weights, step_folders
from glassformer.runs.records import DataRecord, StepMetrics, read_log_lines
from glassformer.tasks import Task
from glassformer.tasks.restoring import load_model_folder, restore_begun_task
from glassformer.utils import safe_read
from glassformer.utils.safe_read import LIMITS

MAX_POINTS = 2000
"""Most points of a curve that are sent at once."""
WHOLE = 500
"""Newest points that are never thinned."""


class GrowingLog:
    """The lines of `metrics.jsonl` so far.

    Args:
        path: the log, which need not exist yet.

    Attributes:
        rows: one for each step, in order; of a step that was logged twice the later line.
        damaged: numbers of the lines that are none of a log, which are left out.
        generation: how often the log was read again from the start, so that who holds earlier rows drops them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[StepMetrics] = []
        self.damaged: list[int] = []
        self.generation = 0
        self._inode, self._offset, self._n_lines = -1, 0, 0

    def update(self) -> None:
        """Read the whole lines that were written since; one that is still being written is waited for."""
        try:
            state = os.stat(self.path)
        except OSError:
            self._restart(-1)
            return
        if state.st_ino != self._inode or state.st_size < self._offset:
            self._restart(state.st_ino)
        if state.st_size == self._offset:
            return
        with safe_read.open_regular(self.path, LIMITS["log"]) as file:
            file.seek(self._offset)
            data = file.read(LIMITS["log"])
        whole = data[: data.rfind(b"\n") + 1]
        rows = read_log_lines(whole, self.path, self.damaged, self._n_lines + 1)
        self._offset, self._n_lines = self._offset + len(whole), self._n_lines + whole.count(b"\n")
        steps = [row.step for row in (*self.rows[-1:], *rows)]
        self.rows = [*self.rows, *rows]
        if any(after <= before for before, after in itertools.pairwise(steps)):  # some were done again
            self.rows = sorted({row.step: row for row in self.rows}.values(), key=lambda row: row.step)
            self.generation += 1

    def _restart(self, inode: int) -> None:
        if self.rows:
            self.generation += 1
        self.rows, self.damaged, self._inode, self._offset, self._n_lines = [], [], inode, 0, 0


def thinned(rows: Sequence[StepMetrics], most: int = MAX_POINTS, whole: int = WHOLE) -> list[StepMetrics]:
    """Return at most so many rows: the newest as they are, of each stretch before them the lowest and highest loss.

    So no spike of the loss is lost, and the curve has the outline of the whole one.
    """
    if len(rows) <= most:
        return list(rows)
    old, new = rows[:-whole], rows[-whole:]
    n_stretches = (most - whole) // 2
    kept: list[StepMetrics] = []
    for i in range(n_stretches):
        stretch = old[i * len(old) // n_stretches : (i + 1) * len(old) // n_stretches]
        low, high = (choose(stretch, key=_loss) for choose in (min, max))
        kept += [low] if low is high else sorted((low, high), key=lambda row: row.step)
    return [*kept, *new]


def spread(rows: Sequence[StepMetrics], most: int) -> list[StepMetrics]:
    """Return at most so many rows at equal distances, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i * (len(rows) - 1) // (most - 1)] for i in range(most)]


def _loss(row: StepMetrics) -> float:
    return row.loss if math.isfinite(row.loss) else math.inf


TrainingState: TypeAlias = Literal["waiting", "running", "paused", "finished", "stopped", "gone"]
"""waiting: no step is logged yet. stopped: it ended, or died, before its last step. gone: its folder disappeared."""
Action: TypeAlias = Literal["pause", "step", "go_on", "stop"]
DIAGNOSE_SECONDS = 10.0
"""Least time between two diagnoses of a training that runs, since each looks at every step."""
QUIET_SECONDS = 60.0
"""Where locks are unknown, a log that has not grown for so long is not written any more."""
MAX_VALIDATIONS, MAX_UPDATES = 1000, 200


COLUMNS = ("step", "seconds", "loss", "lr", "grad_norm")
"""What is drawn of every step."""


class ValidationPoint(TypedDict):
    """Scores of a validation."""

    step: int
    seconds: float | None
    scores: dict[str, float]
    best: bool


class UpdatePoint(TypedDict):
    """What the first and every fiftieth step log."""

    step: int
    seconds: float | None
    ratios: dict[str, float]
    """‖Δw‖ / ‖w‖ of the step, by matrix."""
    clipped: float | None
    """Share of the steps since the last point whose gradient was clipped."""
    wait: float | None
    """Share of their time spent making batches."""


class TrainingNow(TypedDict):
    """A training so far (GET /api/training); of lists of steps those after the requested one."""

    state: TrainingState
    run: str
    """The folder's name, not its path."""
    generation: int
    """Another one than before: what was received is of an earlier log, and is to be dropped."""
    step: int
    """The last step logged; 0: none."""
    seconds: float | None
    steps: int | None
    """Its budget in steps; null: in epochs."""
    metric: str
    """The score that chooses the weights."""
    higher_is_better: bool
    curve: Annotated[
        dict[str, list[float | None]], 'Record<"step" | "seconds" | "loss" | "lr" | "grad_norm", number[]>'
    ]
    """Values of the same steps; null: not finite."""
    validations: list[ValidationPoint]
    updates: list[UpdatePoint]
    findings: list[Finding]
    """What `glassformer doctor` says of the log so far."""
    snapshots: list[CheckpointInfo]
    """Snapshots and checkpoints of the weights, oldest first."""
    has_model: bool
    """Whether the weights with the best validation are saved, as `model`."""
    control: bool
    """Whether the page may pause and stop it now."""
    refused: str | None
    """Why it may not, a sentence; null: it may, or nothing runs."""


class Training:
    """The training of one run folder, read again at each question.

    Args:
        path: the folder, in which nothing need be yet.
        may_write: whether `control.json` may be written.
    """

    def __init__(self, path: Path, may_write: bool = False) -> None:
        self.folder, self.may_write = RunFolder(path), may_write
        self.log = GrowingLog(self.folder.metrics)
        self._control = ControlFile(self.folder.control)
        self._config: Config | None = None
        self._data = DataRecord()
        self._findings: list[Finding] = []
        self._diagnosed: tuple[float, object, bool] = (float("-inf"), None, False)
        self._lock = threading.Lock()

    def state(self) -> TrainingState:
        """Return what the folder says now; the log must be up to date."""
        folder, rows = self.folder, self.log.rows
        if not folder.path.is_dir():
            return "gone"
        locked = is_locked(folder.path)
        if locked is None:
            locked = not folder.finished and self._grew_lately()
        if not locked and folder.finished:
            return "finished"
        if not locked and rows:
            return "stopped"
        if not rows:  # an imported model has no log
            return "finished" if not locked and folder.model_folder is not None else "waiting"
        return "paused" if rows[-1].paused and self._control.pauses(rows[-1].step) else "running"

    def now(self, after: int = 0) -> TrainingNow:
        """Return the training so far, its steps after one of them."""
        with self._lock:
            if self.folder.path.is_dir():
                self.log.update()
                if self._config is None and self.folder.resumable:
                    self._config, self._data = self.folder.read_config(), self.folder.read_data()
            state, rows = self.state(), self.log.rows
            new = rows[bisect_right(rows, after, key=lambda row: row.step) :]
            thin = thinned(new)
            config, metric = self._config, self._record().metric if self._config else None
            refused, last = self._why_no_control(state), rows[-1] if rows else StepMetrics(0)
            return {
                "state": state,
                "run": self.folder.path.name,
                "generation": self.log.generation,
                "step": last.step,
                "seconds": last.seconds,
                "steps": config.train.steps if config else None,
                "metric": metric.name if metric else "loss",
                "higher_is_better": metric is not None and metric.higher_is_better,
                "curve": {name: [getattr(row, name) for row in thin] for name in COLUMNS},
                "validations": [_validation(row) for row in spread([row for row in new if row.valid], MAX_VALIDATIONS)],
                "updates": [_update(row) for row in spread([r for r in new if r.update_ratios], MAX_UPDATES)],
                "findings": self._diagnose(state),
                "snapshots": saved_weights(self.folder),
                "has_model": self.folder.model_folder is not None,
                "control": state in ("running", "paused") and refused is None,
                "refused": refused,
            }

    def request(self, action: Action) -> None:
        """Write what is asked into `control.json`.

        Raises:
            UsageError: nothing runs, or the file may not be written.
            ResourceError: it cannot be written.
        """
        with self._lock:
            self.log.update()
            state = self.state()
            if state not in ("running", "paused"):
                raise UsageError(f"this training does not go on: it is {state}", "resume it in its terminal")
            if why := self._why_no_control(state):
                raise UsageError(why)
            current, rows = self._control.read(), self.log.rows
            newest = rows[-1].step if rows else 0
            controls = {
                "pause": PAUSE if current.until is None else current,
                "step": PAUSE if current.until is None else Control(until=max(current.until, newest) + 1),
                "go_on": GO_ON,
                "stop": Control(stop=True),
            }
            self._control.write(controls[action])

    def _record(self) -> RunRecord:
        rows = self.log.rows
        validations = [row for row in rows if row.valid is not None]
        config = self._config or Config()
        return RunRecord(self.folder.path, config, {}, self._data, rows, validations, damaged=self.log.damaged)

    def _diagnose(self, state: TrainingState) -> list[Finding]:
        """Return what the doctor says, now and then; that a run is not finished is no news while it trains."""
        goes_on = state in ("running", "paused")
        key = len(self.log.rows), len(self.log.damaged), self.log.generation, state
        until, known_key, went_on = self._diagnosed
        is_recent = goes_on and went_on and time.monotonic() < until
        if self._config is None or not (self.log.rows or self.log.damaged) or key == known_key or is_recent:
            return self._findings
        folder, began = self.folder, time.monotonic()
        facts = replace(self._record(), diverged=folder.read_divergence(), evaluation=folder.read_evaluation())
        found = diagnose(facts).findings
        self._findings = [finding for finding in found if not goes_on or finding.place != "unfinished"]
        took = time.monotonic() - began
        self._diagnosed = began + max(DIAGNOSE_SECONDS, 20 * took), key, goes_on
        return self._findings

    def _why_no_control(self, state: TrainingState) -> str | None:
        if state not in ("running", "paused"):
            return None
        if not self.may_write:
            return "This page only reads. To pause, step and stop from here: glassformer watch RUN --control"
        if self.folder.model.is_dir():
            return "The steps are done; the model is being scored."
        return None

    def _grew_lately(self) -> bool:
        try:
            return time.time() - self.folder.metrics.stat().st_mtime < QUIET_SECONDS
        except OSError:
            return False


def _validation(row: StepMetrics) -> ValidationPoint:
    return {"step": row.step, "seconds": row.seconds, "scores": dict(row.valid or {}), "best": row.best}


def _update(row: StepMetrics) -> UpdatePoint:
    ratios = dict(row.update_ratios or {})
    return {"step": row.step, "seconds": row.seconds, "ratios": ratios, "clipped": row.clipped, "wait": row.wait}


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A subject that is read from a run folder; `source` names what it was read from."""

    path: Path
    task: Task
    model: nn.Module
    device: torch.device
    source: str


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
            UsageError: nothing is saved yet.
            CheckpointError: what is saved is damaged.
        """
        source = self._newest()
        if source is None:
            if self._model is not None:  # its folder has gone
                return self._model
            raise UsageError(
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

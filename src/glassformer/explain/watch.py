"""The training of a run as a page shows it while it runs, and afterwards: curves, state, findings, snapshots, model.

Everything is read from the run folder, and nothing of it is written but `control.json`, where that is allowed. Of a
log that grows only what came since the last look is read; one that was replaced, as where a run is resumed, is read
again.

At each snapshot the model answers a few texts: its answer, how probable it finds it, and one attention map.
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
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

import numpy as np
import torch
from msgspec import Meta
from torch import nn

from glassformer.config import Config
from glassformer.data.diagnostics import Finding
from glassformer.errors import GlassformerError, UsageError
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.one_label import looked_at, of_same_label
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import CheckpointInfo, Subject, checkpoint_weights, examples, saved_weights, weights_of
from glassformer.report.findings import diagnose
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import CONTINUE, PAUSE, Control, ControlFile, RunFolder, is_locked
from glassformer.runs.model_folder import load_weights, step_folders
from glassformer.runs.records import DataRecord, StepMetrics, read_log_lines
from glassformer.runs.run_data import load_run_data
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
            inode, size = state.st_ino, state.st_size
        except OSError:
            inode, size = -1, 0
        if inode != self._inode or size < self._offset:
            self.generation += bool(self.rows)
            self.rows, self.damaged, self._inode, self._offset, self._n_lines = [], [], inode, 0, 0
        if size == self._offset:
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
    return [rows[i] for i in np.linspace(0, len(rows) - 1, most).astype(int)]


def _loss(row: StepMetrics) -> float:
    return row.loss if math.isfinite(row.loss) else math.inf


TrainingState: TypeAlias = Literal["waiting", "running", "paused", "finished", "stopped", "gone"]
"""waiting: no step is logged yet. stopped: it ended, or died, before its last step. gone: its folder disappeared."""
Action: TypeAlias = Literal["pause", "step", "continue", "stop"]
DIAGNOSE_SECONDS = 10.0
"""Least time between two diagnoses of a training that runs, since each looks at every step."""
QUIET_SECONDS = 60.0
"""Where locks are unknown, a log that has not grown for so long is not written any more."""
MAX_VALIDATIONS, MAX_UPDATES = 1000, 200


COLUMNS = ("step", "seconds", "loss", "lr", "grad_norm")
"""What is drawn of every step."""


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
    validations: list[StepMetrics]
    updates: list[StepMetrics]
    """The first and every fiftieth step, with the `update_ratios` of each matrix."""
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


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A subject that is read from a run folder."""

    path: Path
    task: Task
    model: nn.Module
    device: torch.device


class Training:
    """The training of one run folder, read again at each question, and the newest model that can be explained.

    Args:
        path: the folder, in which nothing need be yet.
        may_write: whether `control.json` may be written.
        device: where its models compute.
    """

    def __init__(self, path: Path, may_write: bool = False, device: torch.device | None = None) -> None:
        self.path, self.folder, self.may_write = path, RunFolder(path), may_write
        self.device = device or torch.device("cpu")
        self._loaded: tuple[str, SavedModel] | None = None
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
                "validations": spread([row for row in new if row.valid], MAX_VALIDATIONS),
                "updates": spread([row for row in new if row.update_ratios], MAX_UPDATES),
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
                raise UsageError(f"this training cannot continue: it is {state}", "resume it in its terminal")
            if why := self._why_no_control(state):
                raise UsageError(why)
            current, newest = self._control.read(), self.log.rows[-1].step  # one that waits for its first is refused
            controls = {
                "pause": PAUSE if current.until is None else current,
                "step": PAUSE if current.until is None else Control(until=max(current.until, newest) + 1),
                "continue": CONTINUE,
                "stop": Control(stop=True),
            }
            self._control.write(controls[action])

    def subject(self) -> Subject:
        """Return the finished model, or else the best weights so far, or else the newest that are saved.

        Raises:
            UsageError: nothing is saved yet.
            CheckpointError: what is saved is damaged.
        """
        source = self._newest()
        if source is not None and (self._loaded is None or self._loaded[0] != source):
            self._loaded = source, self._load(source)
        if self._loaded is None:
            raise UsageError(
                f"{self.path.name} has no weights yet",
                "they come with the first snapshot or checkpoint; the screen Training shows what is logged before",
            )
        return self._loaded[1]  # also where its folder has gone

    def _newest(self) -> str | None:
        folder = self.folder
        if folder.model_folder is not None:
            return "model"
        checkpoints, saved = [*step_folders(folder.checkpoints).values()], saved_weights(folder)
        return checkpoints[-1].name if checkpoints else saved[-1]["name"] if saved else None

    def _load(self, source: str) -> SavedModel:
        folder = self.folder
        if source == "model":
            task, weights = load_model_folder(folder)
        else:
            task, checkpoint = restore_begun_task(folder), folder.checkpoints / source
            best = checkpoint_weights(checkpoint, "best") if checkpoint.is_dir() else {}
            weights = best or weights_of(folder, source)
        model = task.build_model()
        load_weights(model, weights)
        return SavedModel(self.path, task, model.to(self.device).eval(), self.device)

    def _record(self) -> RunRecord:
        rows = self.log.rows
        validations = [row for row in rows if row.valid is not None]
        config = self._config or Config()
        return RunRecord(self.folder.path, config, {}, self._data, rows, validations, damaged=self.log.damaged)

    def _diagnose(self, state: TrainingState) -> list[Finding]:
        """Return what the doctor says, now and then; that a run is not finished is no news while it trains."""
        trains = state in ("running", "paused")
        key = len(self.log.rows), len(self.log.damaged), self.log.generation, state
        until, known_key, trained = self._diagnosed
        is_recent = trains and trained and time.monotonic() < until
        if self._config is None or not (self.log.rows or self.log.damaged) or key == known_key or is_recent:
            return self._findings
        folder = self.folder
        facts = replace(self._record(), diverged=folder.read_divergence(), evaluation=folder.read_evaluation())
        found = diagnose(facts).findings
        self._findings = [finding for finding in found if not trains or finding.place != "unfinished"]
        self._diagnosed = time.monotonic() + DIAGNOSE_SECONDS, key, trains
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


MAX_PROBES = 8
N_DEFAULT = 4
MAX_PROBE_CHARACTERS = 1000
MAX_MAP_TOKENS = 48
"""Longer texts have no map here, which would be too fine to read; the screen Attention has it."""


ProbeText = Annotated[str, Meta(max_length=MAX_PROBE_CHARACTERS)]


AttentionMap = Annotated[dict[str, Any], "{ step: string; rows: string[]; columns: string[]; weights: number[][] }"]
"""The attention weights of one layer, averaged over its heads: the id of the step, the tokens that attend, and those
that are attended to."""


class ProbeAnswer(TypedDict):
    """What the model at a snapshot makes of a text."""

    text: str
    checkpoint: str
    headline: str
    detail: str
    probability: float | None
    """Of the answer, that of all its tokens together; null: of a bare encoder, or of masked tokens."""
    per_token: float | None
    """Of a continuation the geometric mean of the probabilities of its tokens; null: of any other answer."""
    map: AttentionMap | None
    """null: the text is too long to draw."""


def probe(subject: Subject, text: str, checkpoint: str) -> ProbeAnswer:
    """Return the answer of a snapshot to a text; errors as of `explain`.

    The label or word that is looked at is chosen by the subject's own weights, so that it is the same at each snapshot.
    """
    view = looked_at(subject, TraceRequest(text))
    explanation = explain(subject, of_same_label(TraceRequest(text, checkpoint=checkpoint), view))
    probability, per_token = answer_probabilities(explanation)
    return {
        "text": text,
        "checkpoint": checkpoint,
        **explanation.answer,
        "probability": probability,
        "per_token": per_token,
        "map": attention_map(explanation),
    }


def answer_probabilities(explanation: Explanation) -> tuple[float | None, float | None]:
    """Return `probability` and `per_token` of a `ProbeAnswer`: the product over all tokens, and its geometric mean."""
    predictions = explanation.predictions
    if explanation.is_classifier:
        return math.exp(predictions[0].top[0].log_prob), None
    logs = [token.log_prob for i in explanation.generated if (token := predictions[i].actual) is not None]
    if not logs or explanation.decode.masked is not None:
        return None, None
    return math.exp(sum(logs)), math.exp(sum(logs) / len(logs)) if len(explanation.streams) == 1 else None


def attention_map(explanation: Explanation) -> AttentionMap | None:
    """Return the map of the last layer: of a translation cross-attention, of others self-attention."""
    maps = [step for step in explanation.records.values() if step.site == "weights"]
    chosen = [step for step in maps if step.block == "cross"] or maps
    if not chosen or max(chosen[-1].shape[-2:]) > MAX_MAP_TOKENS:
        return None
    weights = explanation.tensor(chosen[-1].id).mean(axis=0)
    pieces = {stream.name: stream.pieces for stream in explanation.streams}
    rows, columns = (pieces[axis.stream or "text"] for axis in chosen[-1].axes[-2:])
    return {
        "step": chosen[-1].id,
        "rows": rows,
        "columns": columns,
        "weights": np.nan_to_num(weights.astype(float)).round(3).tolist(),
    }


def default_texts(subject: Subject) -> dict[str, Any]:
    """Return a few texts, those the run was evaluated on or else of its validation split, and why there are none."""
    config, is_cut = subject.task.config, subject.task.running_text
    texts = examples(subject)
    try:
        texts = texts or load_run_data(subject.path, subject.task.schema, config.data, allow_changed=False).valid.text
    except (GlassformerError, OSError) as error:
        message = error.message if isinstance(error, GlassformerError) else str(error)
        return {"texts": [], "missing": f"The texts of this run cannot be read: {message}"}
    if subject.task.tokenizer.separator:  # half of a pair is none
        texts = [text for text in texts if len(text) <= MAX_PROBE_CHARACTERS]
    short = sorted(dict.fromkeys(filter(str.strip, texts[:200])), key=len)[:N_DEFAULT]
    short = [from_border(text[:MAX_PROBE_CHARACTERS]) if is_cut else text[:MAX_PROBE_CHARACTERS] for text in short]
    return {"texts": short, "missing": None if short else "The validation split of this run holds no text."}


def from_border(text: str) -> str:
    """Return a text from its second line on, or its second word where that leaves less than half of it.

    Running text is cut into splits at any character, so that its first line and word need not be whole.
    """
    for mark in ("\n", " "):
        rest = text.partition(mark)[2].lstrip()
        if 2 * len(rest) >= len(text):
            return rest
    return text

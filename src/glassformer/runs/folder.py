"""The folder of a run: the one place that names its files, reads and writes them, and says what state it is in.

Nothing here trains, scores or reports; a run that was cut short lacks files, and reading says so with None. How a
folder inside it is sealed is `sealed_folder.py`'s business, what a value means `records.py`'s. It imports no torch.

Several runs that differ in their seed alone are in one folder, each a run folder like any other; what is said of
them together is `report/compare.py`'s, and training them `training/trainer.py`'s.

One process trains into a folder: it holds a lock on the file `.lock`. The kernel holds it, so it ends with the process
that took it: what a killed process leaves locks nothing, and neither does the copy of a folder. A forked process does
not hold it. Reading a run takes no lock.

Whoever watches a training asks it to pause, to continue or to stop by the file `control.json`, as in
`{"until": 120, "stop": false}`. The training looks at it after each step and removes it at its start and its end.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from filelock import FileLock, Timeout
from msgspec import Meta

from glassformer.config import Config
from glassformer.config.recipes import config_from_dict, dump_config
from glassformer.errors import CheckpointError, ResourceError, UsageError
from glassformer.runs import records
from glassformer.runs.records import DataRecord, Divergence, Evaluation, JsonObject, StepMetrics
from glassformer.runs.sealed_folder import MANIFEST, is_intact
from glassformer.utils import atomic_io, safe_read
from glassformer.utils.formatting import glassformer_command
from glassformer.utils.safe_read import LIMITS

if TYPE_CHECKING:
    from glassformer.text.tokenizer import Tokenizer


logger = logging.getLogger(__name__)
T = TypeVar("T")

TOKENIZER, PLOTS, SEEDS = "tokenizer.json", "plots", "seeds.json"
EXPORT_FACTS = "glassformer.json"
"""A file that only a model exported for another library holds."""
IMPORT_RECORD, LEARNED_RECORD = "import.json", "learned.json"
"""Files that only a run without a training has: a pretrained model of another library (`interop/imported.py` writes
it), or a model after steps of learning (`explain/learn/learning.py`)."""
MODEL_KIND, MODEL_CONFIG = "glassformer model", "config.json"
"""What `model/` is sealed as, and the file that says what it is; the rest of it is `model_folder.py`'s."""
BEGUN = "begun_with"
"""In `env.json`: the record of what the run was begun with (`records.py`)."""

LOCK = ".lock"
"""The file in a run folder that is locked; removed when the lock is given back."""
UNSUPPORTED = {errno.ENOLCK, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems without locks."""
WAIT_SECONDS = 0.2
"""How long a lock is waited for: who asks whether it is held takes it for an instant."""


def is_exported(path: Path) -> bool:
    """Return True if a folder is an exported model; nothing of it is checked."""
    return (path / EXPORT_FACTS).is_file() and (path / MANIFEST).is_file()


class RunFolder:
    """A run on disk; making one touches nothing.

    Args:
        path: the folder. What `load` takes may also be a model folder alone: see `model_folder`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        # Written before the first step; the configuration last, for its presence means "resumable".
        self.env = path / "env.json"
        self.data = path / "data.json"
        self.tokenizer = path / TOKENIZER
        self.config = path / "config.toml"
        # While training.
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.snapshots = path / "snapshots"
        self.diverged = path / "diverged.json"
        self.control = path / "control.json"  # written by who watches, see `Control`
        # After it; the evaluation last of what takes time, for its presence means "finished".
        self.model = path / "model"
        self.predictions, self.evaluation = path / "predictions.jsonl", path / "evaluation.json"
        self.report = path / "report.md"
        self.plots = path / PLOTS

    # In what state it is

    @property
    def resumable(self) -> bool:
        """Return True if everything from before the first step exists, so that training can start or resume."""
        return self.config.is_file()

    @property
    def trained(self) -> bool:
        """Return True if training has finished and its model is intact."""
        return is_intact(self.model, MODEL_KIND)

    @property
    def finished(self) -> bool:
        """Return True if the model was evaluated; the model card and the report may still be missing."""
        return self.evaluation.is_file()

    @property
    def resume_command(self) -> str:
        return glassformer_command("train", "--resume", self.path)

    @property
    def not_empty(self) -> bool:
        """Return True if something of this name exists that a new run must not write into."""
        return self.path.exists() and (not self.path.is_dir() or any(p.name != LOCK for p in self.path.iterdir()))

    def check_new(self) -> None:
        """Refuse a folder for a new run that is in use.

        Raises:
            UsageError: which, and what to do.
        """
        if self.not_empty:
            begun = self.resumable or (self.path / SEEDS).is_file()
            hint = f"resume it: {self.resume_command}; or " if begun else ""
            raise UsageError(f"{self.path} is not empty", f"{hint}name another --out")

    def refuse_links(self) -> None:
        """Refuse to write into a run that holds a symbolic link; the run itself may be one.

        Something outside of the run would be written, or deleted, through it.

        Raises:
            CheckpointError: the link, and where it leads.
        """
        if link := next((path for path in self.path.rglob("*") if path.is_symlink()), None):
            message = f"{link} is a link to {os.readlink(link)}, and nothing is written through a link in a run"
            raise CheckpointError(message, "put there what it leads to; or move the whole run, and link to that")

    def remove_incomplete_start(self) -> None:
        """Take away what a process that died before its first step wrote, if nothing else is there."""
        begun = self.tokenizer, self.data, self.env
        names = {path.name for path in self.path.glob("[!.]*")}
        # The environment is written first and removed last: a data.json alone is not ours.
        if not names or (names <= {path.name for path in begun} and self.env.name in names):
            atomic_io.remove_leftovers(self.path)
            for path in begun:
                path.unlink(missing_ok=True)

    @property
    def model_folder(self) -> Path | None:
        """Return the folder that `load` reads: `model/`, or this folder if it is a model folder itself; else None."""
        return next((folder for folder in (self.model, self.path) if (folder / MODEL_CONFIG).is_file()), None)

    def require_model_folder(self) -> Path:
        """Return `model_folder`; raise CheckpointError if there is none."""
        if is_exported(self.path):
            hint = f"use it with: {glassformer_command('predict', self.path)}"
            raise CheckpointError(f"{self.path} is an exported model, not a run", hint)
        if (folder := self.model_folder) is None:
            resumed = f"resume with: {self.resume_command}; add --finish to use what is trained so far"
            hint = resumed if self.resumable else "give the folder that --out named"
            raise CheckpointError(f"one run folder is expected, and {self.path} holds no trained model", hint)
        if not (folder / MANIFEST).is_file():
            message = f"{folder} is a model of another library, or lacks its {MANIFEST}"
            raise CheckpointError(message, f"import it: {glassformer_command('import', folder, '--out', 'RUN')}")
        return folder

    # What it was begun with

    def begin(self, config: Config, env: JsonObject, data: DataRecord, tokenizer: Tokenizer) -> str:
        """Write what is known before the first step; return the sum of it that checkpoints hold too."""
        begun_with = records.start_sum(config, data.as_json(), tokenizer.sha256)
        self.path.mkdir(parents=True, exist_ok=True)
        atomic_io.write_json(self.env, env | {BEGUN: begun_with})
        atomic_io.write_json(self.data, data.as_json())
        tokenizer.save(self.tokenizer)
        atomic_io.atomic_write_text(self.config, dump_config(config))
        return begun_with

    def check_unchanged(self, where: Path | None = None) -> str:
        """Return the sum of what the run was begun with, after comparing it with what `env.json`, or `where`, records.

        Raises:
            CheckpointError: settings, `data.json` or tokenizer are others, missing, or were never recorded.
        """
        recorded, data = safe_read.read_json_object(where := where or self.env), safe_read.read_json_object(self.data)
        now = records.start_sum(self.read_config(), data, self.read_tokenizer().sha256)
        if recorded.get(BEGUN) != now:
            files = f"{self.config}, {self.data.name} or {self.tokenizer.name}"
            message = f"{files} is not what the run was begun with, as {where} has it"
            raise CheckpointError(message, "restore it, or start a new run")
        return now

    def read_config(self) -> Config:
        """Read the run's configuration; raise CheckpointError if it is missing or damaged."""
        if not self.resumable:
            hint = "an import, or what learned an answer, has no log of its own: train from it with --init-from"
            message = f"{self.path} holds no run (no config.toml)"
            raise CheckpointError(message, f"give the folder that --out named; {hint}")
        return _config_of({"recipe": "", **safe_read.read_toml(self.config)}, self.config)

    def read_tokenizer(self) -> Tokenizer:
        """Read the tokenizer; errors as in `Tokenizer.load`."""
        from glassformer.text.tokenizer import Tokenizer

        return Tokenizer.load(self.tokenizer)

    def read_env(self) -> JsonObject:
        return _read(JsonObject, self.env) or {}

    def read_data(self) -> DataRecord:
        """Read the record of the data; all fields unknown if nothing was written."""
        return _read(DataRecord, self.data) or DataRecord()

    # The log

    def read_metrics(self, damaged: list[int] | None = None) -> list[StepMetrics]:
        """Read every line of the log, in order; `damaged` as in `records.read_log_lines`."""
        log = safe_read.read_bytes(self.metrics, LIMITS["log"]) if self.metrics.exists() else b""
        return records.read_log_lines(log, self.metrics, damaged)

    def truncate_metrics(self, step: int) -> None:
        """Take out what was logged after a step, for it is done again, and lines that are none of a log."""
        self.diverged.unlink(missing_ok=True)
        rows = {row.step: row for row in self.read_metrics([]) if row.step <= step}
        if len(rows) < step:
            logger.warning(f"{self.metrics} lacks {step - len(rows):,} of the {step:,} steps before")
        atomic_io.atomic_write_text(self.metrics, "".join(row.line() for row in rows.values()))

    def write_divergence(self, step: int, message: str) -> None:
        """Record the step that diverged, since the run ends before it is logged."""
        atomic_io.write_json(self.diverged, vars(Divergence(step, message)))

    def read_divergence(self) -> Divergence | None:
        return _read(Divergence, self.diverged)

    # Scores

    def write_evaluation(self, evaluation: Evaluation, predictions: Iterable[JsonObject]) -> Evaluation:
        """Write scores and predictions; return the scores as they will be read."""
        rows = "".join(atomic_io.json_line(row) + "\n" for row in predictions)
        atomic_io.atomic_write_text(self.predictions, rows)
        atomic_io.write_json(self.evaluation, evaluation.as_json())
        return Evaluation.read(self.evaluation) or evaluation

    def read_evaluation(self) -> Evaluation | None:
        return Evaluation.read(self.evaluation)

    def read_predictions(self) -> Iterator[JsonObject] | None:
        """Read the predictions one by one, an object per example in the split's order; None if none were kept.

        Raises CheckpointError at a line that is not JSON.
        """
        if not self.predictions.exists():
            return None
        lines = safe_read.read_bytes(self.predictions, LIMITS["predictions"]).splitlines()
        return (
            safe_read.from_json(JsonObject, line, f"{self.predictions}:{n}") for n, line in enumerate(lines, start=1)
        )


def _read(kind: type[T], path: Path) -> T | None:
    """Return the record in a JSON file; None if there is no file."""
    return safe_read.read_json(path, kind=kind) if path.exists() else None


def _config_of(values: JsonObject, where: Path) -> Config:
    """Return the configuration of a run as its folder has it; anything else is a CheckpointError."""
    try:
        if "task" not in values:
            raise UsageError(f"{where} names no task", "restore it from a copy")
        return config_from_dict(values, str(where))
    except UsageError as error:
        raise CheckpointError(error.message, error.hint) from error


@dataclass(frozen=True)
class _Seeds:
    """`seeds.json`."""

    seeds: Annotated[list[int], Meta(min_length=1)]
    config: JsonObject


class SeedsFolder:
    """Several runs on disk; making one touches nothing."""

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.seeds_file = path / SEEDS  # written before the first run, so that all of them can be resumed
        self.ensemble = path / "ensemble.json"  # scores of all runs as one
        self.report = path / "report.json"

    @property
    def exists(self) -> bool:
        return self.seeds_file.is_file()

    def run(self, seed: int) -> RunFolder:
        return RunFolder(self.path / f"seed-{seed}")

    def read(self) -> tuple[Config, list[int]]:
        """Read the configuration and the seeds to train; raise CheckpointError if the file is damaged."""
        value = safe_read.read_json(self.seeds_file, LIMITS["settings"], kind=_Seeds)
        return _config_of(value.config, self.seeds_file), value.seeds

    @property
    def finished(self) -> list[RunFolder]:
        return [run for seed in self.read()[1] if (run := self.run(seed)).finished]

    def read_ensemble(self) -> Evaluation | None:
        return Evaluation.read(self.ensemble)

    @property
    def best(self) -> RunFolder:
        """Return the run with the best validation, as the report names it.

        Raises:
            CheckpointError: not all seeds are finished.
        """
        name = (_read(JsonObject, self.report) or {}).get("best")
        runs = [self.run(seed) for seed in self.read()[1]]
        if found := [run for run in runs if run.path.name == name]:
            return found[0]
        one = next((f"; or name one that is finished: {run.path}" for run in runs if run.model_folder), "")
        hint = f"resume it with: {RunFolder(self.path).resume_command}{one}"
        raise CheckpointError(f"{self.path} holds several seeds, and not all of them are trained", hint)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder within the block; the folder is made if need be, and removed if it is empty then.

    Raises:
        UsageError: another process, or another thread of this one, trains into it.
        ResourceError: it cannot be written.
    """
    path, made = folder / LOCK, [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(path, timeout=WAIT_SECONDS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"{path} should be a regular file", "remove it, or name another folder")
        lock.acquire()
    except Timeout:
        message = f"another process is training into {folder}"
        raise UsageError(message, "wait until it ends, or name another folder") from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            message = f"{folder} cannot be written: {error.strerror or error}"
            raise ResourceError(message, "choose a folder that can be written") from error
        logger.warning(f"{folder} is on a file system without locks: start one training at a time into it")
    try:
        yield
    finally:
        if lock.is_locked:  # not in a forked process
            with suppress(OSError):
                path.unlink()  # while it is held: who waits for it then locks a new file
            lock.release()
            with suppress(OSError):  # not empty: something was written
                for each in made:
                    each.rmdir()


def is_locked(folder: Path) -> bool | None:
    """Return whether a process trains into a folder; None where that cannot be known, as on a disk without locks.

    A lock is taken for an instant where there is none, which a training that begins just then waits for.
    """
    if not (folder / LOCK).is_file():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return None


@dataclass(frozen=True)
class Control:
    """What is asked of a training.

    Attributes:
        until: the step, counted from 1, after which to pause, or at once where it is over; a later one takes steps
            until then. None to continue.
        stop: whether to end the run as it is: its best weights so far are scored and reported.
    """

    until: Annotated[int, Meta(ge=0)] | None = None
    stop: bool = False


CONTINUE, PAUSE = Control(), Control(until=0)


@dataclass
class ControlFile:
    """The control file of a run folder; `control` is what the last look found."""

    path: Path
    control: Control = CONTINUE
    _warned: bool = False

    def write(self, control: Control) -> None:
        """Ask for something; raise ResourceError where the folder cannot be written."""
        atomic_io.write_json(self.path, asdict(control))

    def close(self) -> None:
        """Remove the file, or a link of its name; what cannot be removed stays."""
        with suppress(OSError):
            self.path.unlink()

    def read(self) -> Control:
        """Return what is asked now: nothing without a file; one that is damaged changes nothing, and is logged once."""
        try:
            self.control = _read(Control, self.path) or CONTINUE
        except CheckpointError as error:
            if not self._warned:
                logger.warning(f"{error.message}; it is ignored")
            self._warned = True
        return self.control

    def pauses(self, step: int) -> bool:
        """Return whether to pause after this step, counted from 1."""
        until = self.read().until
        return until is not None and step >= until

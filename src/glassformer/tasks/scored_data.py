"""The split that a trained model is scored on: one of its own data, read again, or files that were named."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from glassformer.config import Config, DataConfig
from glassformer.config.recipes import override
from glassformer.data.datasets.local_files import load_test, load_text_data
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, overlap_text, overlap_with_training
from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import JsonObject
from glassformer.runs.run_data import known_columns, load_run_data
from glassformer.tasks import Task
from glassformer.text.answers import empty_message

logger = logging.getLogger(__name__)

VALID_INSTEAD = 'score the validation split: --split valid (in Python split="valid"); or give test files'
"""What to do where a run has no test split."""


class Scored(Protocol):
    """What is scored; a `Run` is one."""

    path: Path
    task: Task
    config: Config
    allow_changed_data: bool


@dataclass(frozen=True)
class ScoredData:
    """A split to score, and what is to be said of it.

    Attributes:
        split: the examples.
        name: "test", "valid" or "train"; "file" for files that were named.
        train: the training part, unless it is not there or has changed.
        task: the task, which says whether baselines are fitted on it.
        changed: files of the run's data that changed since training, which was allowed.
        notes: how the files were read.
        counts: what was met in them, by name.
    """

    split: Split
    name: str
    train: Split | None
    task: Task
    changed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def baselines(self) -> Split | None:
        return self.train if self.task.fits_baselines else None

    def facts(self) -> JsonObject:
        """Return what a result says of its data; log how many of its texts are empty, and in training too."""
        facts: dict[str, Any] = {}
        if not self.task.running_text and (n_empty := sum(not text.strip() for text in self.split.text)):
            logger.warning(empty_message(n_empty, len(self.split)))
        if self.name != "train" and self.train is not None and not self.changed:
            overlap = overlap_with_training(self.split, self.train, self.task.running_text)
            if overlap is not None:
                facts["also_in_training"], facts["compared_with_training"] = overlap
                if overlap.n_shared:
                    logger.warning(
                        overlap_text({"valid": "validation"}.get(self.name, "test"), overlap, self.task.running_text)
                    )
        if self.changed:
            facts["changed_data"] = self.changed
        reading = {"notes": self.notes, "counts": self.counts}
        return facts | ({"reading": reading} if self.notes or self.counts else {})


def scored_data(run: Scored, name: str, data: DataConfig | None, allow_changed: bool = False) -> ScoredData:
    """Return the split to score, with the notes of its reading logged.

    `data` is other data than the run's own, or where that lies now (`data_dir`).

    Raises:
        DataError: the data is not there, has no such split, or has changed.
        UsageError: a split is named together with test files; a setting of the data is outside its interval.
    """
    allow_changed = allow_changed or run.allow_changed_data
    data = None if data is None else override(Config(data=data), {}, "configuration").data
    task, own = run.task, run.config.data
    files = data.files if data is not None and data.dataset == "files" else None
    if files is not None and files.pair_column is not None and not task.tokenizer.separator:
        raise UsageError(f"{run.path} reads one text, and a column of second texts was named", "leave it out")
    if data is not None and files is not None and (files.test_file or files.test_src_file) and name == "test":
        return _of_files(run, data, allow_changed)
    if files is not None and not (files.train_file or files.src_file):
        raise UsageError(f"{name!r} is a split of the run's own data, and test files are named", "give one of them")
    if data is None or replace(data, data_dir=None) == replace(own, data_dir=None):
        if data is not None and data.dataset == "files" and data.data_dir != own.data_dir:
            message = "data_dir is of built-in data sets, and this run was trained on files"
            raise UsageError(message, "leave it out, or name test files")
        read = load_run_data(run.path, task.schema, data or own, allow_changed=allow_changed)
        everything, changed = read.text, read.changed
    else:
        everything, changed = load_text_data(task.schema, data, known_columns(RunFolder(run.path).read_data())), []
    if (chosen := everything.splits().get(name)) is None:
        raise DataError(f"this run's data has no {name} split", VALID_INSTEAD)
    if chosen.shards is not None:
        message = f"the {name} split was encoded ahead, and its text is not kept"
        raise DataError(message, VALID_INSTEAD)
    _log(everything.notes)
    train = everything.train
    return ScoredData(chosen, name, train, task, changed, everything.notes, everything.counts)


def _of_files(run: Scored, data: DataConfig, allow_changed: bool) -> ScoredData:
    """Return named test files, with the training part where it is there as it was."""
    diagnostics = Diagnostics()
    known = known_columns(RunFolder(run.path).read_data())
    split = load_test(run.task.eval_schema, data, known, diagnostics)
    _log(diagnostics.notes)
    train, changed = _training_part(run, allow_changed)
    counts = {name: n for name, n in diagnostics.counts.items() if n}
    return ScoredData(split, "file", train, run.task, changed, diagnostics.notes, counts)


def _training_part(run: Scored, allow_changed: bool) -> tuple[Split | None, list[str]]:
    """Return the training part, and the files that changed; without it there are no baselines."""
    try:
        read = load_run_data(run.path, run.task.schema, run.config.data, allow_changed=allow_changed)
    except ChangedDataError as error:
        logger.warning(f"{error.message}: the test data is not compared with it, and no baseline is fitted")
        return None, []
    except (DataError, UsageError) as error:  # no longer there, or a model folder alone, which names no data
        logger.info(f"the training data is not there to compare the test data with: {error.message}")
        return None, []
    return read.text.train, read.changed


def _log(notes: list[str]) -> None:
    for note in notes:
        logger.info(note)

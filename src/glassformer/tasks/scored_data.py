"""The split that a trained model is scored on: one of its own data, read again, or files that were named."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from glassformer.config import Config, DataConfig
from glassformer.config.recipes import override
from glassformer.data.datasets.local_files import load_test
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, overlap_text, overlap_with_training
from glassformer.errors import DataError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import JsonObject
from glassformer.runs.run_data import known_columns, load_run_data
from glassformer.tasks import Task
from glassformer.text.answers import empty_message

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredData:
    """A split to score, and what is to be said of it.

    Attributes:
        split: the examples.
        name: "test", "valid" or "train"; "file" for files that were named.
        train: the training part, unless it is not there or has changed.
        changed: files of the run's data that changed since training, which was allowed.
    """

    split: Split
    name: str
    train: Split | None
    changed: list[str]

    def facts(self, running_text: bool) -> JsonObject:
        """Return what a result says of its data; log how many of its texts are empty, and in training too."""
        facts: JsonObject = {"changed_data": self.changed} if self.changed else {}
        if not running_text and (n_empty := sum(not text.strip() for text in self.split.text)):
            logger.warning(empty_message(n_empty, len(self.split)))
        if self.name == "train" or self.train is None or self.changed:
            return facts
        if (overlap := overlap_with_training(self.split, self.train, running_text)) is None:
            return facts
        if overlap.n_shared:
            logger.warning(overlap_text("validation" if self.name == "valid" else "test", overlap, running_text))
        return facts | {"also_in_training": overlap.n_shared, "compared_with_training": overlap.n}


def scored_data(path: Path, task: Task, name: str, data: DataConfig | None, allow_changed: bool) -> ScoredData:
    """Return the split to score of the run at `path`, with the notes of its reading logged.

    `data` names test files, or where the run's built-in data set lies now (`data_dir`).

    Raises:
        DataError: the data is not there, has no such split, or has changed.
        UsageError: `data` is other data, or names test files beside another split.
    """
    own = task.config.data
    data = own if data is None else override(Config(data=data), {}, "configuration").data
    if data != own and data.dataset == "files" and (data.files.test_file or data.files.test_src_file):
        return _of_files(path, task, name, data, allow_changed)
    if data != own and (own.dataset == "files" or replace(data, data_dir=own.data_dir) != own):
        message = f"{path} was trained on other data, and data_dir is the folder of a built-in data set"
        raise UsageError(message, "leave it out, or name test files")
    read = load_run_data(path, task.schema, data, allow_changed=allow_changed)
    chosen = read.text.splits().get(name)
    if chosen is None or chosen.shards is not None:
        message = f"this run has no {name} split, or one that was encoded ahead, and its text is not kept"
        raise DataError(message, 'score the validation split: --split valid (split="valid"); or give test files')
    for note in read.text.notes:
        logger.info(note)
    return ScoredData(chosen, name, read.text.train, read.changed)


def _of_files(path: Path, task: Task, name: str, data: DataConfig, allow_changed: bool) -> ScoredData:
    """Return named test files, with the training part where it is there as it was; else there are no baselines."""
    if name != "test":
        raise UsageError(f"{name!r} is a split of the run's own data, and test files are named", "give one of them")
    if data.files.pair_column is not None and not task.tokenizer.separator:
        raise UsageError(f"{path} reads one text, and a column of second texts was named", "leave it out")
    diagnostics = Diagnostics()
    split = load_test(task.eval_schema, data, known_columns(RunFolder(path).read_data()), diagnostics)
    for note in diagnostics.notes:
        logger.info(note)
    try:
        read = load_run_data(path, task.schema, task.config.data, allow_changed=allow_changed)
        return ScoredData(split, "file", read.text.train, read.changed)
    except (DataError, UsageError) as error:  # it changed, is no longer there, or a model folder alone names none
        logger.warning(f"not compared with the training data, and without baselines: {error.message}")
        return ScoredData(split, "file", None, [])

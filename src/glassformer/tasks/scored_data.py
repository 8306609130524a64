"""The split that a trained model is scored on: one of its own data, read again, or files that were named."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from glassformer.config import Config, DataConfig
from glassformer.config.recipes import override
from glassformer.data.datasets.columns import Columns
from glassformer.data.datasets.local_files import load_test
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, overlap_text, overlap_with_training
from glassformer.errors import DataError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import JsonObject
from glassformer.runs.run_data import changed_files, load_run_data
from glassformer.tasks import Task
from glassformer.text.answers import of_texts

logger = logging.getLogger(__name__)


def scored_data(
    path: Path, task: Task, name: str, data: DataConfig | None, allow_changed: bool
) -> tuple[Split, Split | None, JsonObject]:
    """Return the split of the run at `path` to score, the training part, and what a result says of both.

    `data` names test files, or where the run's built-in data set lies now (`data_dir`). The training part is None where
    it is not there or has changed, in which case test files are scored without baselines. How files were read, how many
    texts are empty, and how many are in training too, is logged.

    Raises:
        DataError: the data is not there, has no such split, or has changed.
        UsageError: `data` is other data, or names test files beside another split.
    """
    own = task.config.data
    data = own if data is None else override(Config(data=data), {}, "configuration").data
    if data != own and data.dataset == "files" and (data.test_file or data.test_src_file):
        split, notes = _test_files(path, task, name, data)
        train, changed, name = None, list[str](), "file"
        try:
            read = load_run_data(path, task.schema, own, allow_changed=allow_changed)
            train, changed = read.train, changed_files(path, read)
        except (DataError, UsageError) as error:  # it changed, is no longer there, or a model folder alone names none
            logger.warning(f"not compared with the training data, and without baselines: {error.message}")
    elif data != own and (own.dataset == "files" or replace(data, data_dir=own.data_dir) != own):
        message = f"{path} was trained on other data, and --data-dir is the folder of a built-in data set"
        raise UsageError(message, "leave it out, or name test files")
    else:
        read = load_run_data(path, task.schema, data, allow_changed=allow_changed)
        split, notes, train, changed = read.splits().get(name), read.notes, read.train, changed_files(path, read)
        if split is None:
            message = f"this run has no {name} split"
            raise DataError(message, "score the validation split: --split valid; or name test files: --test-file")
    for note in notes:
        logger.info(note)
    return split, train, {"split": name} | _facts(split, name, train, changed, task.running_text)


def _test_files(path: Path, task: Task, name: str, data: DataConfig) -> tuple[Split, list[str]]:
    """Return named test files, read by the columns of training, and notes of how they were read."""
    if name != "test":
        raise UsageError(f"{name!r} is a split of the run's own data, and test files are named", "give one of them")
    if data.pair_column is not None and not task.tokenizer.separator:
        raise UsageError(f"{path} reads one text, and a column of second texts was named", "leave it out")
    diagnostics = Diagnostics()
    known = Columns.from_json(RunFolder(path).read_data().columns)
    return load_test(task.eval_schema, data, known, diagnostics), diagnostics.notes


def _facts(split: Split, name: str, train: Split | None, changed: list[str], running_text: bool) -> JsonObject:
    """Return which files changed, and how many texts are in training too; warn of those, and of empty texts."""
    facts: JsonObject = {"changed_data": changed} if changed else {}
    if not running_text and (n_empty := sum(not text.strip() for text in split.text)):
        logger.warning(of_texts(n_empty, len(split), "empty"))
    if name == "train" or train is None or changed:
        return facts
    n_shared, n = overlap_with_training(split, train, running_text)
    if n_shared:
        logger.warning(overlap_text("validation" if name == "valid" else "test", n_shared, n, running_text))
    return facts | {"also_in_training": n_shared, "compared_with_training": n}

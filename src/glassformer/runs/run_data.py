"""Reads the data of a run again: the one way to it after training.

A run keeps no copy of its texts. They are read again from the same files, and a file that has changed since would give
other splits: examples that were trained on would be scored as validation. So the hashes are compared with those in
data.json, and a change is an error unless it is allowed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from glassformer.config import DataConfig
from glassformer.data.datasets.columns import Columns, DataSchema
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import TextData
from glassformer.errors import ChangedDataError, DataError
from glassformer.runs.folder import RunFolder

logger = logging.getLogger(__name__)

ALLOW = "--allow-changed-data"


def load_run_data(path: Path, schema: DataSchema, data: DataConfig, *, allow_changed: bool | None = False) -> TextData:
    """Read the data of a run again, and compare it with what it was trained on.

    With `allow_changed` a change is a warning, and the data is returned as it is now. None: it cannot be allowed, as
    where training continues.

    Raises:
        ChangedDataError: a file has changed since, and that is not allowed.
        DataError, UsageError: the data is not there, or is damaged.
    """
    own = data.dataset == "files"
    named = [str(file) for name, file in vars(data).items() if own and name.endswith("_file") and file]
    if own and not named:  # an import, a model folder alone, or what learned after an import
        raise DataError(f"{path} holds a model that has no data of its own", "name test files, as with --test-file")
    try:
        text = load_text_data(schema, data, Columns.from_json(RunFolder(path).read_data().columns))
    except DataError as error:
        if gone := next((name for name in named if not Path(name).exists()), None):
            message = f"{gone} is no longer there, and the run was trained on it"
            raise DataError(message, "put it back, or start in the folder in which the run was trained") from error
        raise
    if changed := changed_files(path, text):
        more = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
        message = f"{changed[0]}{more} {'have' if more else 'has'} changed since the run began"
        if not allow_changed:
            way = "start a new run" if allow_changed is None else f"allow it: {ALLOW}"
            raise ChangedDataError(message, f"restore it, or {way}")
        logger.warning(f"{message}: what was trained on may be scored as if it were new")
    return text


def changed_files(path: Path, now: TextData) -> list[str]:
    """Return the files of a run's data, read again, that are not as they were at training."""
    return different_files(RunFolder(path).read_data().hashes, now.hashes)


def different_files(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the paths of files that changed or are gone, else of those that came; a file is known by name and hash."""
    was, found = (Counter((PurePosixPath(p).name, sha) for p, sha in each.items()) for each in (recorded, now))
    gone = [path for path, sha in recorded.items() if (PurePosixPath(path).name, sha) in was - found]
    came = {path for path, sha in now.items() if (PurePosixPath(path).name, sha) in found - was} - recorded.keys()
    return sorted(gone or came) if recorded else []

"""The one door to the data: a task and a `DataConfig` in, texts out.

Each data set is read in a file of its own, imported only when it is wanted; nothing here knows a format.
"""

from __future__ import annotations

from glassformer.config import DataConfig
from glassformer.data.splits import TextData
from glassformer.errors import UsageError

TASK_OF = {"imdb": "classify", "multi30k": "translate", "dates": "translate", "shakespeare": "lm"}
TASKS = ("classify", "translate", "lm")


def load_text_data(task: str, data: DataConfig) -> TextData:
    """The texts of `data.dataset` for a task.

    Args:
        task: classify, translate or lm.
        data: which data set, and how to split it.

    Raises:
        UsageError: the data set does not exist, or is one for another task.
        DataError: its files are missing, malformed or misaligned.
    """
    if task not in TASKS:
        raise UsageError(f'task "{task}" is not one of {", ".join(TASKS)}.')
    expected = TASK_OF.get(data.dataset, task)
    if expected != task:
        raise UsageError(
            f'data set "{data.dataset}" is for the task {expected}, not {task}.',
            hint=f"Start from a recipe for {expected}.",
        )
    match data.dataset:
        case "files":
            from glassformer.data import own_files

            return own_files.load(task, data)
        case "imdb":
            from glassformer.data import imdb

            return imdb.load(data)
        case "multi30k":
            from glassformer.data import multi30k

            return multi30k.load(data)
        case "shakespeare":
            from glassformer.data import shakespeare

            return shakespeare.load(data)
        case "dates":
            from glassformer.data import dates

            return dates.load(data)
        case other:
            raise UsageError(
                f'data set "{other}" does not exist.', hint=f"There are files, {', '.join(TASK_OF)}."
            )

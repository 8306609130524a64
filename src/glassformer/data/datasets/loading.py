"""The one door to the data: what a task reads and a `DataConfig` in, texts out.

Each data set is read in a file of its own; nothing here knows a format.
"""

from __future__ import annotations

from glassformer.config import DataConfig
from glassformer.data.datasets import dates, imdb, local_files, multi30k, shakespeare
from glassformer.data.datasets.known_columns import KnownColumns
from glassformer.data.schema import DataSchema
from glassformer.data.sources import pipes_kept
from glassformer.data.splits import TextData, limited
from glassformer.errors import UsageError

LOADERS = {
    "imdb": imdb.load,
    "imdb-texts": imdb.load_texts,
    "multi30k": multi30k.load,
    "dates": dates.load,
    "shakespeare": shakespeare.load,
}
ANSWERS = {"imdb": "label", "imdb-texts": "", "multi30k": "target", "dates": "target", "shakespeare": None}
"""What the texts of each built-in data set come with: "" is nothing; None is running text."""
_IN_WORDS = {None: "running text", "": "texts alone", "label": "texts with labels", "target": "pairs of sentences"}


@pipes_kept()
def load_text_data(schema: DataSchema, data: DataConfig, known: KnownColumns | None = None) -> TextData:
    """Load the texts of `data.dataset` for a task.

    Args:
        schema: what the task reads.
        data: which data set, and how to split it.
        known: the columns that a run was trained on, where its data is read again.

    Raises:
        UsageError: the data set does not exist, or holds something else than the task reads.
        DataError: its files are missing, malformed or misaligned.
    """
    held = ANSWERS.get(data.dataset, schema.target)
    if not schema.accepts(held):
        wanted = _IN_WORDS.get(schema.target, f"texts with {schema.target}")
        what = f'data set "{data.dataset}" holds {_IN_WORDS[held]}, and {schema.task} needs {wanted}'
        raise UsageError(what, hint=f"start from a recipe for {schema.task}")
    if data.limit is not None and schema.columns is None:
        raise UsageError("limit counts examples, and a running text has none", "use --steps instead")
    if data.dataset == "files":
        text = local_files.load(schema, data, known)
    elif data.dataset in LOADERS:
        text = LOADERS[data.dataset](data)
    else:
        raise UsageError(f'data set "{data.dataset}" does not exist', f"choose from files, {', '.join(ANSWERS)}")
    return limited(text, data.limit, data.split_seed)

"""Reports everything wrong with data before training, with file and line, and counts what is merely unusual.

Errors are those that loading or training would stop at, all of them instead of the first. Byte order marks, CRLF line
ends, empty texts, duplicates, and texts shared with the training part are only counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.config import Config, DataConfig
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.documents import read_documents
from glassformer.data.datasets.labels import labels_of
from glassformer.data.datasets.local_files import data_parts, load_text_data, read_parts
from glassformer.data.datasets.numbers import summary
from glassformer.data.diagnostics import DataIssue, Diagnostics, Finding
from glassformer.data.findings import KnownData, of_data
from glassformer.data.shards import is_pretokenized
from glassformer.data.sources import pipes_kept
from glassformer.data.splits import Split, TextData, check_texts_differ, n_duplicates, overlap_with_training
from glassformer.errors import DataError
from glassformer.runs.records import SplitRecord


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    Args:
        errors: errors in reading order, at most a thousand.
        n_errors: number of all errors.
        counts: counts above 0 by name, such as "train: duplicates".
        sizes: readable examples (running text: characters; shards: tokens) of each part.
        notes: messages, such as which columns are read.
        numbers: where targets are numbers, mean, sd and quantiles of those of each part.
        findings: those that the start of a training logs about the data, as far as they need no tokenizer.
    """

    errors: list[DataIssue]
    n_errors: int
    counts: dict[str, int]
    sizes: dict[str, int]
    notes: list[str]
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if training could start."""
        return self.n_errors == 0


@pipes_kept()
def check_data(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Read all parts of the data and return a report; errors inside files are reported, not raised.

    Raises:
        UsageError: files are not named, or a requested column is missing.
        DataError: a built-in data set cannot be loaded, or shards are missing or damaged.
    """
    diagnostics, loaded, running = Diagnostics(), None, schema.columns is None
    if data.dataset != "files" or is_pretokenized(data.files.train_file):
        loaded = load_text_data(schema, data)
        splits = loaded.splits()
        diagnostics.notes += loaded.notes
    elif running:
        parts = {name: part for name, part in data_parts(schema, data).items() if isinstance(part, Path)}
        splits = {n: Split(read_documents(path, diagnostics)) for n, path in parts.items()}
    else:
        rows = read_parts(schema, data_parts(schema, data), data, diagnostics)
        splits = {name: part.split() for name, part in rows.items()}
    if loaded is None and not diagnostics.n_issues:
        loaded = _as_training(schema, data, diagnostics)
    train, counts = splits.get("train"), diagnostics.counts
    for name, split in splits.items():
        counts.update({f"{name}: {what}": n for what, n in _counts(schema, split, train).items()})
    numbers: dict[str, dict[str, float]] = {}
    if schema.target == "number" and not diagnostics.n_issues:
        numbers = {name: found for name, split in splits.items() if (found := summary(split.answers))}
    sizes, found = {name: _size(schema, split) for name, split in splits.items()}, list[Finding]()
    if loaded is not None:
        train, parts = loaded.train, loaded.splits().items()
        records = {name: SplitRecord(len(part), **compared(part, train, running)) for name, part in parts}
        known = KnownData(Config(data=data), records, label_counts(schema, train))
        found = [*loaded.findings, *of_data(known)]
    return CheckReport(
        diagnostics.issues, diagnostics.n_issues, dict(+counts), sizes, diagnostics.notes, numbers, found
    )


def _as_training(schema: DataSchema, data: DataConfig, diagnostics: Diagnostics) -> TextData | None:
    """Return readable files as training loads them; None after noting why it would refuse them."""
    files = data.files
    path = str(files.train_file or files.src_file)
    other = "" if files.train_file else f" (read with {files.tgt_file})"
    try:
        loaded = load_text_data(schema, data)
        if schema.columns is not None:
            check_texts_differ(loaded.train)
        return loaded
    except DataError as error:
        diagnostics.error(Path(path), 0, "too little", error.message.removeprefix(f"{path}: ") + other)


def _size(schema: DataSchema, split: Split) -> int:
    if split.shards:
        return split.shards.n_tokens
    return sum(map(len, split.text)) if schema.columns is None else len(split)


def _counts(schema: DataSchema, split: Split, train: Split | None) -> dict[str, int]:
    """Return how many examples of a part are unusual, and in which way."""
    if split.shards:
        return split.shards.counts
    columns = [split.text, split.answers] if schema.parallel else [split.text]
    empty = sum(not all(side.strip() for side in example) for example in zip(*columns, strict=True))
    counts = {"empty": empty, "duplicates": n_duplicates(split)}
    if train:
        counts["also in training"] = compared(split, train, schema.columns is None).get("n_in_training", 0)
    if schema.columns and schema.columns[-1].separator is not None:
        counts["texts without a label"] = sum(not answer for answer in split.answers)
    return counts | dict(schema.count(split))


def compared(split: Split, train: Split, running_text: bool) -> dict[str, Any]:
    """Return how many examples of a part occur twice, and how many of its texts are in training, as `SplitRecord`."""
    counts = {} if running_text or split.shards else {"n_duplicates": n_duplicates(split)}
    if split is train or (overlap := overlap_with_training(split, train, running_text)) is None:
        return counts
    return counts | {"n_in_training": overlap.n_shared, "n_compared": overlap.n}


def label_counts(schema: DataSchema, split: Split) -> Counter[str]:
    """Return how many texts have each label; nothing where answers are none."""
    if schema.target != "label":
        return Counter()
    return Counter(label for answer in split.answers for label in labels_of(answer))

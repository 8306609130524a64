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
from glassformer.data.datasets.labels import labels_of
from glassformer.data.datasets.local_files import data_parts, load_text_data, read_parts
from glassformer.data.diagnostics import DataIssue, Diagnostics, Finding
from glassformer.data.findings import KnownData, of_data
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
        sizes: readable examples (running text: characters) of each part.
        notes: messages, such as which columns are read.
        findings: those that the start of a training logs about the data, as far as they need no tokenizer.
    """

    errors: list[DataIssue]
    n_errors: int
    counts: dict[str, int]
    sizes: dict[str, int]
    notes: list[str]
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if training could start."""
        return self.n_errors == 0


def check_data(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Read all parts of the data and return a report; errors inside files are reported, not raised.

    Raises:
        UsageError: files are not named, or a requested column is missing.
        DataError: a built-in data set cannot be loaded.
    """
    diagnostics, loaded, running = Diagnostics(), None, schema.columns is None
    if data.dataset != "files":
        loaded = load_text_data(schema, data)
        splits = loaded.splits()
        diagnostics.notes += loaded.notes
    else:
        splits = read_parts(schema, data_parts(schema, data), data, diagnostics)
    if not diagnostics.n_issues:
        loaded = _as_training(schema, data, loaded, diagnostics)
    train, counts = splits["train"], diagnostics.counts
    for name, split in splits.items():
        counts.update({f"{name}: {what}": n for what, n in _counts(schema, split, train).items()})
    sizes = {name: sum(map(len, split.text)) if running else len(split) for name, split in splits.items()}
    found = list[Finding]()
    if loaded is not None:
        train, parts = loaded.train, loaded.splits().items()
        records = {name: SplitRecord(len(part), **compared(part, train, running)) for name, part in parts}
        known = KnownData(Config(data=data), records, label_counts(schema, train))
        found = [*loaded.findings, *of_data(known)]
    return CheckReport(diagnostics.issues, diagnostics.n_issues, dict(+counts), sizes, diagnostics.notes, found)


def _as_training(
    schema: DataSchema, data: DataConfig, loaded: TextData | None, diagnostics: Diagnostics
) -> TextData | None:
    """Return readable data as training loads it; None after noting why it would refuse it."""
    path = str(data.files.train_file or data.files.src_file or data.dataset)
    other = f" (read with {data.files.tgt_file})" if data.files.tgt_file else ""
    try:
        loaded = loaded or load_text_data(schema, data)
        if schema.columns is not None:
            check_texts_differ(loaded.train)
    except DataError as error:
        diagnostics.error(Path(path), 0, "too little", error.message.removeprefix(f"{path}: ") + other)
        return None
    schema.check(loaded.splits(), diagnostics)
    return loaded


def _counts(schema: DataSchema, split: Split, train: Split) -> dict[str, int]:
    """Return how many examples of a part are unusual, and in which way."""
    columns = [split.text, split.answers] if schema.parallel else [split.text]
    empty = sum(not all(side.strip() for side in example) for example in zip(*columns, strict=True))
    shared = compared(split, train, schema.columns is None).get("n_in_training", 0)
    counts = {"empty": empty, "duplicates": n_duplicates(split), "also in training": shared}
    if schema.columns and schema.columns[-1].separator is not None:
        counts["texts without a label"] = sum(not answer for answer in split.answers)
    return counts | dict(schema.count(split))


def compared(split: Split, train: Split, running_text: bool) -> dict[str, Any]:
    """Return how many examples of a part occur twice, and how many of its texts are in training, as `SplitRecord`."""
    counts = {} if running_text else {"n_duplicates": n_duplicates(split)}
    if split is train:
        return counts
    n_shared, n = overlap_with_training(split, train, running_text)
    return counts | {"n_in_training": n_shared, "n_compared": n}


def label_counts(schema: DataSchema, split: Split) -> Counter[str]:
    """Return how many texts have each label; nothing where answers are none."""
    if schema.target != "label":
        return Counter()
    return Counter(label for answer in split.answers for label in labels_of(answer))

"""Everything that is wrong with data, with file and line, and what is merely worth knowing, before training.

Errors are those `own_files.load` would stop at, all of them instead of the first. Counted and no errors:
byte order marks, CRLF line ends, empty texts, duplicates, labels with one example, texts that training shares with
the other parts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.datasets.documents import read_documents
from glassformer.data.datasets.loading import load_text_data
from glassformer.data.datasets.local_files import data_parts, read_parts
from glassformer.data.datasets.pseudo_labels import read_pseudo_labels
from glassformer.data.diagnostics import DataIssue, Diagnostics
from glassformer.data.pretokenized.index import ShardIndex, is_pretokenized
from glassformer.data.schema import DataSchema
from glassformer.data.splits import Split


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Args:
        errors: what must be mended, in the order it was met (the first thousand).
        n_errors: all of it.
        counts: harmless things by name, such as "train: duplicates"; none is zero.
        sizes: readable examples (running text: characters; shards: tokens) of each part.
        notes: what loading would announce, such as which columns were guessed.
    """

    errors: list[DataIssue]
    n_errors: int
    counts: dict[str, int]
    sizes: dict[str, int]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether training could start."""
        return self.n_errors == 0


def check_data(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Read all parts of the data and report on them; raises nothing for what is wrong inside the files.

    Raises:
        UsageError: files are not named, or a column asked for is not there.
        DataError: a built-in data set cannot be loaded.
    """
    diagnostics = Diagnostics()
    if data.dataset == "files" and is_pretokenized(data.files.train_file):
        return _check_pretokenized(schema, data)
    if data.dataset != "files":  # it loads or it does not; the rest is counting
        loaded = load_text_data(schema, data)
        diagnostics.notes += loaded.notes
        splits = loaded.splits()
    elif schema.columns is None:
        parts = {name: part for name, part in data_parts(schema, data).items() if isinstance(part, Path)}
        splits = {n: Split([text for _, text in read_documents(path, diagnostics)]) for n, path in parts.items()}
    else:
        rows = read_parts(schema, data_parts(schema, data), data, diagnostics)
        if data.pseudo_file is not None:
            rows["pseudo"], _ = read_pseudo_labels(schema, data, rows, diagnostics)
        splits = {name: part.split() for name, part in rows.items()}
    _count(splits, diagnostics.counts)
    if schema.target == "label" and "train" in splits:
        of_label = Counter(splits["train"].answers)
        diagnostics.counts["train: labels with one example"] += sum(n == 1 for n in of_label.values())
    counts = {name: n for name, n in diagnostics.counts.items() if n}
    characters = schema.columns is None
    sizes = {name: sum(map(len, s.text)) if characters else len(s) for name, s in splits.items()}
    return CheckReport(diagnostics.issues, diagnostics.n_issues, counts, sizes, diagnostics.notes)


def _check_pretokenized(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Report on shards; a DataError names a file of them that is not what was written."""
    index = ShardIndex.read(Path(str(data.files.train_file)))
    loaded = load_text_data(schema, data)
    counts = {f"train: {name}": n for name, n in index.counts.items() if n}
    sizes = {"train": index.n_tokens} | {
        name: sum(map(len, split.text)) for name, split in loaded.splits().items() if name != "train"
    }
    return CheckReport([], 0, counts, sizes, loaded.notes)


def _count(splits: dict[str, Split], counts: Counter[str]) -> None:
    """Examples with an empty side, duplicates within a part, and what validation and test share with training."""
    train_texts = set(splits["train"].text) if "train" in splits else set()
    for name, split in splits.items():
        columns = [split.text] if split.answer is None else [split.text, split.answer]
        examples = list(zip(*columns, strict=True))
        counts[f"{name}: empty"] += sum(not all(side.strip() for side in example) for example in examples)
        counts[f"{name}: duplicates"] += len(examples) - len(set(examples))
        if name != "train":
            counts[f"{name}: also in training"] += sum(text in train_texts for text in split.text)

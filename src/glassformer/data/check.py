"""Reports everything wrong with data before training, with file and line, and counts what is merely unusual.

Errors are those that loading or training would stop at, all of them instead of the first. Byte order marks, CRLF line
ends, empty texts, duplicates, labels with one example, and texts shared with the training part are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from glassformer.config import DataConfig, TextConfig
from glassformer.data.corpus import RaggedArray, split_document
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.documents import read_documents
from glassformer.data.datasets.labels import labels_of
from glassformer.data.datasets.local_files import data_parts, load_text_data, read_parts
from glassformer.data.datasets.numbers import summary
from glassformer.data.diagnostics import DataIssue, Diagnostics, Finding
from glassformer.data.shards import ShardIndex, is_pretokenized
from glassformer.data.sources import pipes_kept
from glassformer.data.splits import Split, check_texts_differ, n_contradictions, n_duplicates, overlap_with_training
from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import percent


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
    """

    errors: list[DataIssue]
    n_errors: int
    counts: dict[str, int]
    sizes: dict[str, int]
    notes: list[str]
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Return True if training could start."""
        return self.n_errors == 0


@pipes_kept()
def check_data(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Read all parts of the data and return a report; errors inside files are reported, not raised.

    Raises:
        UsageError: files are not named, or a requested column is missing.
        DataError: a built-in data set cannot be loaded.
    """
    diagnostics = Diagnostics()
    if data.dataset == "files" and is_pretokenized(data.files.train_file):
        return _check_pretokenized(schema, data)
    if data.dataset != "files":
        loaded = load_text_data(schema, data)
        diagnostics.notes += [*loaded.notes, *map(str, loaded.findings)]
        splits = loaded.splits()
    elif schema.columns is None:
        parts = {name: part for name, part in data_parts(schema, data).items() if isinstance(part, Path)}
        splits = {n: Split([text for _, text in read_documents(path, diagnostics)]) for n, path in parts.items()}
    else:
        rows = read_parts(schema, data_parts(schema, data), data, diagnostics)
        splits = {name: part.split() for name, part in rows.items()}
    if data.dataset == "files" and not diagnostics.n_issues:
        _check_trainable(schema, data, diagnostics)
    several = schema.columns is not None and schema.columns[-1].separator is not None
    _count(splits, diagnostics.counts, schema, several)
    for name, split in splits.items():
        diagnostics.counts.update({f"{name}: {what}": n for what, n in schema.count(split).items()})
    if schema.target == "label":
        for name, split in splits.items():
            diagnostics.counts[f"{name}: texts with several labels"] += n_contradictions(split)
        if "train" in splits:
            of_label = Counter(label for answer in splits["train"].answers for label in labels_of(answer))
            diagnostics.counts["train: labels with one example"] += sum(n == 1 for n in of_label.values())
    numbers: dict[str, dict[str, float]] = {}
    if schema.target == "number":
        numbers = {name: found for name, split in splits.items() if (found := summary(split.answers))}
        for name, split in splits.items():
            diagnostics.counts[f"{name}: equal texts with different numbers"] += n_contradictions(split)
    counts = {name: n for name, n in diagnostics.counts.items() if n}
    characters = schema.columns is None
    sizes = {name: sum(map(len, s.text)) if characters else len(s) for name, s in splits.items()}
    return CheckReport(diagnostics.issues, diagnostics.n_issues, counts, sizes, diagnostics.notes, numbers)


def _check_trainable(schema: DataSchema, data: DataConfig, diagnostics: Diagnostics) -> None:
    """Load readable files as training does, and report why it would refuse them."""
    files = data.files
    path = str(files.train_file or files.src_file)
    other = "" if files.train_file else f" (read with {files.tgt_file})"
    try:
        train = load_text_data(schema, data).train
        if schema.columns is not None:
            check_texts_differ(train)
    except DataError as error:
        diagnostics.error(Path(path), 0, "too little", error.message.removeprefix(f"{path}: ") + other)


def _check_pretokenized(schema: DataSchema, data: DataConfig) -> CheckReport:
    """Report on shards; a DataError names a missing or damaged file."""
    index = ShardIndex.read(Path(str(data.files.train_file)))
    loaded = load_text_data(schema, data)
    counts = {f"train: {name}": n for name, n in index.counts.items() if n}
    sizes = {"train": index.n_tokens} | {
        name: sum(map(len, split.text)) for name, split in loaded.splits().items() if name != "train"
    }
    return CheckReport([], 0, counts, sizes, [*loaded.notes, *map(str, loaded.findings)])


def _count(splits: dict[str, Split], counts: Counter[str], schema: DataSchema, several: bool) -> None:
    """Count empty texts, or pairs with an empty side; duplicates within a part, and texts shared with training."""
    for name, split in splits.items():
        columns = [split.text, split.answers] if schema.parallel else [split.text]
        if several:
            counts[f"{name}: texts without a label"] += sum(not answer for answer in split.answers)
        examples = list(zip(*columns, strict=True))
        counts[f"{name}: empty"] += sum(not all(side.strip() for side in example) for example in examples)
        counts[f"{name}: duplicates"] += n_duplicates(split)
        if name != "train" and "train" in splits:
            overlap = overlap_with_training(split, splits["train"], schema.columns is None)
            counts[f"{name}: also in training"] += overlap.n_shared if overlap else 0


MANY_TOKENS = 0.05
"""Share of unknown tokens above which a model does not read what it is given."""
SOME_TOKENS, MANY_TEXTS = 0.02, 0.2
"""Fewer matter too where they are spread over so many texts; in long texts a rare name is no harm."""
REMEDY = "--text.tokenizer byte-bpe knows every character; a larger --text.vocab-size knows more words"
OTHER_MODEL = "begin with a model of such texts"
"""What helps where the vocabulary comes from another run and cannot be changed."""
CHUNK = 1000
"""Texts encoded at a time."""


def n_texts_with_unknown(columns: Iterable[RaggedArray], unk_id: int) -> int:
    """Count the examples with at least one unknown token in any of their columns."""
    hits = [np.searchsorted(c.offsets, np.flatnonzero(c.flat == unk_id), side="right") for c in columns]
    return len(np.unique(np.concatenate(hits)))


def count_unknown_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], text: TextConfig, running: bool
) -> tuple[int, int, int, int]:
    """Encode texts as a task would; count tokens kept, texts truncated, unknown tokens, and texts with one.

    Running text is not truncated.
    """
    n_tokens = n_cut = n_unknown = n_texts = 0
    parts = [p for t in texts for p in chain.from_iterable(split_document(t, tokenizer.kind))] if running else texts
    for start in range(0, len(parts), CHUNK):
        for ids in tokenizer.encode_batch(parts[start : start + CHUNK]):
            kept = ids if running else tokenizer.truncate(ids, tokenizer.room(text.max_len), text.truncate)
            unknown = kept.count(tokenizer.unk_id)
            n_tokens, n_cut = n_tokens + len(kept), n_cut + (len(kept) < len(ids))
            n_unknown, n_texts = n_unknown + unknown, n_texts + (unknown > 0)
    return n_tokens, n_cut, n_unknown, n_texts


def unknown_finding(
    where: str, rate: float | None, n_texts: int | None, n: int, remedy: str = REMEDY
) -> Finding | None:
    """Return a finding if too many tokens are unknown.

    `n_texts` are those with at least one; None for running text.
    """
    share = (n_texts or 0) / max(1, n)
    if not rate or not (rate > MANY_TOKENS or (rate > SOME_TOKENS and share > MANY_TEXTS)):
        return None
    among = f", in {n_texts:,} of {n:,} texts" if n_texts is not None else ""
    matter = f"{percent(rate)} of the {where} tokens are unknown to the model{among}"
    return Finding(matter, remedy, "unknown tokens", {"rate": rate})

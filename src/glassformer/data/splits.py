"""A data set as texts with targets in training, validation and test splits, and what the splits share."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from glassformer.data.diagnostics import Finding
from glassformer.errors import DataError

LINE_CHARS = 32
"""Shorter lines of running text recur by chance, and are not compared."""


def overlap_with_training(split: Split, train: Split, running_text: bool) -> tuple[int, int]:
    """Return how many texts of a part (of running text, long lines) are in the training part, and of how many."""
    known, units = ([*_long_lines(part)] if running_text else part.text for part in (train, split))
    return sum(map({*known}.__contains__, units)), len(units)


def n_duplicates(split: Split) -> int:
    """Return the number of examples that are equal to one before them, the target included."""
    return len(split.text) - len(set(zip(split.text, split.answer or split.text, strict=True)))


def overlap_text(name: str, n_shared: int, n: int, running_text: bool) -> str:
    """Return `12 of 40 test texts are also in training`."""
    unit = f"lines of {LINE_CHARS} characters or more" if running_text else "texts"
    return f"{n_shared:,} of {n:,} {name} {unit} are also in training"


def _long_lines(split: Split) -> Iterator[str]:
    lines = (line.strip() for text in split.text for line in text.split("\n"))
    return (line for line in lines if len(line) >= LINE_CHARS)


@dataclass(frozen=True)
class Split:
    """The examples of one part of a data set.

    Args:
        text: inputs: texts, source sentences, documents.
        answer: target of each text as written, a label or a sentence; None for texts alone and running text.
        source: origin of the texts, for messages ("aclImdb/train"); of files their path.
        lines: of each example in a file the line that it begins on.
        columns: those that were read of a table, `Columns`.

    Raises:
        DataError: `text` and `answer` have different lengths.
    """

    text: list[str]
    answer: list[str] | None = None
    source: str = ""
    lines: Sequence[int] = field(default=(), compare=False)
    columns: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.answer is not None and len(self.answer) != len(self.text):
            raise DataError(
                f"{self.source or 'a split'}: {len(self.text)} texts, but {len(self.answer)} answers",
                hint="give each text exactly one",
            )

    def __len__(self) -> int:
        return len(self.text)

    @property
    def answers(self) -> list[str]:
        """Return the targets of texts that have some."""
        assert self.answer is not None
        return self.answer

    @cached_property
    def sha256(self) -> str:
        """Return a hash of every text and target with its length."""
        digest = hashlib.sha256()
        for column in (self.text, self.answer or []):
            digest.update(f"\0{len(column)}\0".encode())
            for text in column:
                data = text.encode("utf-8", "surrogatepass")
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
        return digest.hexdigest()

    def take(self, index: Iterable[int] | np.ndarray, source: str | None = None) -> Split:
        """Return the rows at `index`, in that order, under a new name if `source` is given."""
        rows = [*map(int, index)]
        answer = None if self.answer is None else [self.answer[i] for i in rows]
        return Split([self.text[i] for i in rows], answer, self.source if source is None else source)


@dataclass(frozen=True)
class TextData:
    """A whole data set as text.

    Args:
        train: trains the tokenizer and the model.
        valid: selects the checkpoint.
        test: is scored once at the end; None if there is none.
        notes: messages for the user (the columns, sizes of a seeded split, …).
        hashes: SHA-256 of what was read, by file name.
        extra_tokens: tokens the tokenizer must keep whole, such as the locale tags of `dates`.
        columns: the columns that were read of the training table, as JSON data; empty for other data.
        counts: what was met while reading, by name: "empty lines", "other files not read".
        findings: what a reader must know before believing a score.
    """

    train: Split
    valid: Split
    test: Split | None = None
    notes: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    extra_tokens: tuple[str, ...] = ()
    columns: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def splits(self) -> dict[str, Split]:
        """Return the existing parts by name."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: split for name, split in parts.items() if split is not None}


def check_texts_differ(train: Split) -> None:
    """Raise a DataError if several training texts are all the same."""
    if len({*train.text}) == 1 < len(train):
        message = f"{train.source}: all {len(train):,} texts are the same, so there is nothing to learn"
        raise DataError(message, "look at the column of texts: glassformer data show RECIPE")


def limited(data: TextData, limit: int | None, seed: int) -> TextData:
    """Return `data` with only `limit` of its training examples (None: all), drawn by seed, in their order.

    They are drawn because files are often sorted by label. Where there is room for it, each label is among them: the
    first examples that are drawn are those that have a label that none before them has.
    """
    n = len(data.train)
    if limit is None or limit >= n:
        return data
    order, answers = np.random.default_rng([seed, n]).permutation(n).tolist(), data.train.answer
    first = {label: i for i in reversed(order) for label in answers[i].split("\n")} if answers else {}
    if len(first) <= limit:
        order = list(dict.fromkeys([*first.values(), *order]))
    matter = f"only {limit:,} of {n:,} training examples are used, drawn by seed"
    finding = Finding(matter, place="limit", numbers={"n": limit, "n_all": n})
    return replace(data, train=data.train.take(sorted(order[:limit])), findings=[*data.findings, finding])


def group_split(
    groups: Sequence[Hashable], labels: Sequence[Hashable] | None, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a random share of each label, keeping the examples of a group (reviews of one film) together.

    Shares are rounded by largest remainder. Groups are taken in random order; one that would exceed the share stays in
    training, and so do the last group of a label and its last example. A group counts for the label of its first
    example. `groups` and `labels` (None: all have one) have one of each example, and `fraction` is in (0, 1). The
    indices of the training and of the validation examples are returned, ascending.

    Raises:
        DataError: no group can be held out, since each has the last example of a label.
    """
    labels = [None] * len(groups) if labels is None else labels
    rng = np.random.default_rng([seed, len(groups)])
    members = defaultdict[Hashable, list[int]](list)
    for i, group in enumerate(groups):
        members[group].append(i)
    strata = defaultdict[Hashable, list[list[int]]](list)
    for rows in members.values():
        strata[labels[rows[0]]].append(rows)
    divisible = [stratum for stratum in strata.values() if len(stratum) > 1]
    owed = [fraction * sum(map(len, stratum)) for stratum in divisible]
    quotas, wanted = [int(share) for share in owed], max(1, round(len(groups) * fraction))
    for i in sorted(range(len(owed)), key=lambda i: quotas[i] - owed[i])[: max(0, wanted - sum(quotas))]:
        quotas[i] += 1
    taken: list[list[int]] = []
    for stratum, quota in zip(divisible, quotas, strict=True):
        for i in rng.permutation(len(stratum))[:-1]:
            rows = stratum[int(i)]
            if len(rows) <= quota:
                taken.append(rows)
                quota -= len(rows)
    left = Counter(labels) - Counter(labels[i] for rows in taken for i in rows)
    held_out = list[int]()
    for rows in taken:
        if all(left[labels[i]] for i in rows):
            held_out += rows
        else:  # a text with two labels may hold the last example of one of them
            left.update(labels[i] for i in rows)
    if not held_out:  # a small share of few large groups
        whole = Counter(labels).items()
        spare = (rows for rows in members.values() if whole.isdisjoint(Counter(labels[i] for i in rows).items()))
        held_out = min(spare, key=len, default=[])
    if not held_out:
        raise DataError("nothing can be set aside, since each text holds the last example of a label")
    in_valid = np.isin(np.arange(len(groups)), held_out)
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)

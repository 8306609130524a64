"""What every data set becomes: columns of text, in a training, a validation and perhaps a test part.

The rules by which a part is set aside are here too, as pure functions of their arguments. Nothing here reads
a file and nothing turns text into ids.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glassformer.errors import DataError, UsageError


@dataclass(frozen=True)
class Split:
    """The texts of one part of a data set, a column each.

    Args:
        text: classify: the texts; translate: the source sentences; lm: the documents.
        target: translate: the target sentences, parallel to `text`.
        labels: classify: a class number for each text.
        source: where the texts came from, for messages ("aclImdb/train").

    Raises:
        DataError: when the columns are not equally long.
    """

    text: list[str]
    target: list[str] | None = None
    labels: list[int] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for name, column in (("target", self.target), ("labels", self.labels)):
            if column is not None and len(column) != len(self.text):
                raise DataError(
                    f"{self.source or 'a split'}: {len(self.text)} texts, but {len(column)} entries of {name}.",
                    hint="Each text needs exactly one.",
                )

    def __len__(self) -> int:
        return len(self.text)

    def take(self, index: Sequence[int] | np.ndarray, source: str | None = None) -> Split:
        """The rows at `index`, in that order, under a new name if `source` is given."""
        rows = [int(i) for i in index]
        return Split(
            text=[self.text[i] for i in rows],
            target=None if self.target is None else [self.target[i] for i in rows],
            labels=None if self.labels is None else [self.labels[i] for i in rows],
            source=self.source if source is None else source,
        )


@dataclass(frozen=True)
class TextData:
    """A whole data set as text.

    Args:
        train: what the tokenizer and the model are fitted on.
        valid: what choices are made on.
        test: what is scored once at the end; None when there is none.
        label_names: classify: the name of each class number.
        notes: what a person should be told (columns guessed, sizes of a seeded split, …).
        hashes: file name → sha256 of what was read from it.
        extra_tokens: tokens the tokenizer must keep whole, such as the locale tags of `dates`.
    """

    train: Split
    valid: Split
    test: Split | None = None
    label_names: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    extra_tokens: tuple[str, ...] = ()


def limited(data: TextData, limit: int | None) -> TextData:
    """`data` with only the first `limit` training examples (None: all), and a note that says so.

    Where labels come in blocks ("all negative first"), callers shuffle before; see `imdb.py`.
    """
    if limit is None or limit >= len(data.train):
        return data
    if limit < 1:
        raise UsageError(f"limit must be at least 1, not {limit}.", hint="Leave it out to use all the data.")
    note = f"only the first {limit:,} of {len(data.train):,} training examples are used (limit)"
    return replace(data, train=data.train.take(range(limit)), notes=[*data.notes, note])


def refuse_limit(limit: int | None) -> None:
    """Running text has no examples to count: how much of it is trained on is a number of updates.

    Raises:
        UsageError: `limit` is given.
    """
    if limit is not None:
        raise UsageError("limit counts examples, and running text has none.", hint="Use --steps instead.")


def random_group_split(
    groups: Sequence[Hashable], fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Set a random share aside, but examples of one group (reviews of one film) never part.

    Groups are taken in random order until `fraction` of the examples is reached; a group that would overshoot
    is left in training, so the share is met as closely as the groups allow and never exceeded.

    Args:
        groups: the group of each example.
        fraction: share of the examples to set aside.
        seed: of the choice.

    Returns:
        (train, valid): int64 arrays of example numbers, each ascending, together 0 … n-1 exactly once.

    Raises:
        UsageError: `fraction` outside (0, 1).
        DataError: fewer than two groups.
    """
    _check_fraction(fraction)
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
    if len(numbers) < 2:
        raise DataError(f"{len(numbers)} group(s) cannot be split into training and validation.")
    sizes = np.bincount(group_of)
    order = np.random.default_rng([seed, len(group_of)]).permutation(len(numbers))
    wanted = round(len(group_of) * fraction)
    taken = np.zeros(len(numbers), dtype=bool)
    n_taken = 0
    for group in order:
        if n_taken + sizes[group] <= wanted:
            taken[group] = True
            n_taken += int(sizes[group])
    if n_taken == 0:  # a tiny share of a few large groups: the smallest one, so that validation is not empty
        taken[int(np.argmin(sizes))] = True
    in_valid = taken[group_of]
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise UsageError(f"valid_fraction must lie between 0 and 1, not {fraction}.", hint="0.1 is usual.")

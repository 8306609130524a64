"""What every data set becomes: texts with their answers, in a training, a validation and perhaps a test part.

The rules by which a part is set aside are here too. No file is read here, and no text turned into ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glassformer.data.pretokenized.index import ShardIndex
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Published:
    """Answers in the form that published work is scored on, where that is not the form a model writes.

    Args:
        answers: lowercased, normalised and tokenised.
        language: whose rules of tokenising are Moses's; None where the split itself has that form.
    """

    answers: list[str]
    language: str | None


@dataclass(frozen=True)
class Split:
    """The texts of one part of a data set, and what belongs to each.

    Args:
        text: what goes in: texts, source sentences, documents.
        answer: what should come out for each of them, as it is written: a label, a sentence. None where
            the text itself is all there is.
        source: where the texts came from, for messages ("aclImdb/train").
        published: the answers once more, for a score that can be laid beside others'.
        shards: a running text that was encoded ahead, in place of `text`, which is then empty.
        n_pseudo: how many of the texts, the last ones, have their answer from a model and not from people.

    Raises:
        DataError: when the columns are not equally long.
    """

    text: list[str]
    answer: list[str] | None = None
    source: str = ""
    published: Published | None = None
    shards: ShardIndex | None = None
    n_pseudo: int = 0

    def __post_init__(self) -> None:
        if self.answer is not None and len(self.answer) != len(self.text):
            raise DataError(
                f"{self.source or 'a split'}: {len(self.text)} texts, but {len(self.answer)} answers.",
                hint="Each text needs exactly one.",
            )

    def __len__(self) -> int:
        return self.shards.counts["documents"] if self.shards else len(self.text)

    @property
    def answers(self) -> list[str]:
        """The answers, for those who cannot do without.

        Raises:
            DataError: there are none.
        """
        if self.answer is None:
            raise DataError(f"{self.source or 'a split'}: there is nothing that belongs to the texts")
        return self.answer

    @property
    def human_labelled(self) -> Split:
        """The examples whose answers people gave."""
        return self.take(range(len(self) - self.n_pseudo)) if self.n_pseudo else self

    def take(self, index: Iterable[int] | np.ndarray, source: str | None = None) -> Split:
        """The rows at `index`, in that order, under a new name if `source` is given."""
        rows = [int(i) for i in index]
        answer = None if self.answer is None else [self.answer[i] for i in rows]
        published = self.published and replace(self.published, answers=[self.published.answers[i] for i in rows])
        source = self.source if source is None else source
        return Split([self.text[i] for i in rows], answer, source, published)


@dataclass(frozen=True)
class TextData:
    """A whole data set as text.

    Args:
        train: what the tokenizer and the model are fitted on.
        valid: what choices are made on.
        test: what is scored once at the end; None when there is none.
        notes: what a person should be told (columns guessed, sizes of a seeded split, …).
        hashes: file name → sha256 of what was read from it.
        extra_tokens: tokens the tokenizer must keep whole, such as the locale tags of `dates`.
        tokenizer: the one that the training part is encoded with already, where it is.
    """

    train: Split
    valid: Split
    test: Split | None = None
    notes: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    extra_tokens: tuple[str, ...] = ()
    tokenizer: Tokenizer | None = None

    def splits(self) -> dict[str, Split]:
        """The parts there are, by name."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: split for name, split in parts.items() if split is not None}


TEST_IS_VALIDATION = "validation is the TEST split: scores on it are not held-out scores"
"""The note of every data set that heeds `use_test_as_validation`."""
LIMIT_NOTE = "(limit)"
"""How the note on a limited training part ends; the report finds it by this."""


def check_texts_differ(train: Split) -> None:
    """Raise a DataError if several training texts are all the same."""
    if len(train) > 1 and len(set(train.text)) == 1:
        message = f"{train.source}: all {len(train):,} texts are the same, so there is nothing to learn"
        raise DataError(message, "look at the column of texts: glassformer data show")


def limited(data: TextData, limit: int | None, seed: int) -> TextData:
    """`data` with only `limit` of its training examples (None: all), drawn by seed, and a note that says so.

    Drawn and not the first, because files are often sorted by label; they stay in their order.

    Raises:
        UsageError: `limit` below 1.
    """
    n = len(data.train)
    if limit is None or limit >= n:
        return data
    if limit < 1:
        raise UsageError(f"limit must be at least 1, not {limit}.", hint="Leave it out to use all the data.")
    order = np.random.default_rng([seed, n]).permutation(n)
    note = f"only {limit:,} of {n:,} training examples are used, drawn by seed {LIMIT_NOTE}"
    return replace(data, train=data.train.take(np.sort(order[:limit])), notes=[*data.notes, note])


def random_group_split(groups: Sequence[Hashable], fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Set a random share aside, but examples of one group (reviews of one film) never part.

    Groups are taken in random order; one that would overshoot the share stays in training.

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
    if not 0 < fraction < 1:
        raise UsageError(f"valid_fraction must lie between 0 and 1, not {fraction}.", hint="0.1 is usual.")
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
    if len(numbers) < 2:
        raise DataError(f"{len(numbers)} group(s) cannot be split into training and validation.")
    sizes = np.bincount(group_of)
    order = np.random.default_rng([seed, len(group_of)]).permutation(len(numbers))
    wanted = round(len(group_of) * fraction)
    taken = np.zeros(len(numbers), dtype=bool)
    for group in order:
        if sizes[group] <= wanted:
            taken[group] = True
            wanted -= int(sizes[group])
    if not taken.any():  # a tiny share of a few large groups: the smallest one, so that validation is not empty
        taken[int(np.argmin(sizes))] = True
    in_valid = taken[group_of]
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)


def stratified_group_split(
    groups: Sequence[Hashable], labels: Sequence[Hashable], fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `random_group_split`, but every label gives its share, and every label stays in training.

    A share that is no whole number is rounded, most being owed first; a label of a single group gives nothing. A
    group counts for the label of its first example.

    Raises:
        UsageError: `fraction` outside (0, 1).
        DataError: no label has two groups.
    """
    random_group_split(groups, fraction, seed)  # refuses what cannot be split at all
    rng = np.random.default_rng([seed, len(groups)])
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    strata: dict[Hashable, list[list[int]]] = {}
    for rows in members.values():
        strata.setdefault(labels[rows[0]], []).append(rows)
    divisible = [stratum for stratum in strata.values() if len(stratum) > 1]
    if not divisible:
        raise DataError(f"each of {len(strata)} labels has a single text, and a label must stay in training")
    owed = [fraction * sum(map(len, stratum)) for stratum in divisible]
    quotas, wanted = [int(share) for share in owed], max(1, round(len(groups) * fraction))
    for i in sorted(range(len(owed)), key=lambda i: quotas[i] - owed[i])[: max(0, wanted - sum(quotas))]:
        quotas[i] += 1
    taken: list[list[int]] = []
    for stratum, quota in zip(divisible, quotas, strict=True):
        for at in rng.permutation(len(stratum))[:-1]:
            rows = stratum[int(at)]
            if len(rows) <= quota:
                taken.append(rows)
                quota -= len(rows)
    taken = taken or [min((rows for stratum in divisible for rows in stratum), key=len)]
    in_valid = np.zeros(len(groups), dtype=bool)
    in_valid[np.concatenate(taken)] = True
    left = Counter(labels[int(i)] for i in np.flatnonzero(~in_valid))
    for rows in taken:  # a text labelled in two ways may hold the last example of one of them
        if not all(left[labels[i]] for i in rows):
            in_valid[rows] = False
            left.update(labels[i] for i in rows)
    return np.flatnonzero(~in_valid), np.flatnonzero(in_valid)

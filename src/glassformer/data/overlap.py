"""Counts texts of a part that are in the training part too, examples that occur twice, and labels that contradict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from glassformer.data.splits import Split

LINE_CHARS = 32
"""Shorter lines of running text recur by chance, and are not compared."""


class Overlap(NamedTuple):
    """How many texts of a part (of running text, long lines) are in the training part, and of how many."""

    n_shared: int
    n: int


def overlap_with_training(split: Split, train: Split, running_text: bool) -> Overlap | None:
    """Return the overlap of a part with the training part; None if it is encoded ahead and its text not kept."""
    if train.shards is not None or split.shards is not None:
        return None
    if running_text:
        known = set(_long_lines(train))
        shared = [line in known for line in _long_lines(split)]
        return Overlap(sum(shared), len(shared))
    known = set(train.text)
    return Overlap(sum(text in known for text in split.text), len(split.text))


def n_duplicates(split: Split) -> int:
    """Return the number of examples that are equal to one before them, the target included."""
    if split.answer is None:
        return len(split.text) - len(set(split.text))
    return len(split.text) - len(set(zip(split.text, split.answer, strict=True)))


def n_contradictions(split: Split) -> int:
    """Return the number of examples whose text has another label elsewhere in the split."""
    labels: dict[str, set[str]] = {}
    for text, label in zip(split.text, split.answers, strict=True):
        labels.setdefault(text, set()).add(label)
    return sum(len(labels[text]) > 1 for text in split.text)


def overlap_text(name: str, overlap: Overlap, running_text: bool) -> str:
    """Return `12 of 40 test texts are also in training`."""
    unit = f"lines of {LINE_CHARS} characters or more" if running_text else "texts"
    return f"{overlap.n_shared:,} of {overlap.n:,} {name} {unit} are also in training"


def _long_lines(split: Split) -> Iterator[str]:
    for text in split.text:
        for line in text.split("\n"):
            if len(stripped := line.strip()) >= LINE_CHARS:
                yield stripped

"""Sequences of different lengths: kept flat, one after the other, and taken out as a padded batch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import numpy as np

from glassformer.data.pretokenized.index import ShardedIds


class RaggedArray(Sequence[np.ndarray]):
    """Sequences of different lengths in one flat array.

    Args:
        flat: the ids of all sequences, one after the other; in one array, or in several that are read as one.
        offsets: where each begins, and where the last ends (one more than there are sequences).
    """

    def __init__(self, flat: np.ndarray | ShardedIds, offsets: np.ndarray) -> None:
        self.flat, self.offsets = flat, offsets

    @staticmethod
    def from_lists(sequences: Iterable[Sequence[int]]) -> RaggedArray:
        """Concatenate lists of ids in memory."""
        rows = [np.asarray(ids, np.int64) for ids in sequences]
        offsets = np.cumsum([0, *map(len, rows)])
        return RaggedArray(np.concatenate(rows) if rows else np.zeros(0, np.int64), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a view of one sequence; slices are not supported."""
        i = operator.index(index)
        if not 0 <= i < len(self):
            raise IndexError(f"sequence {i} of {len(self)}")
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each sequence."""
        return np.diff(self.offsets)

    def padded(self, index: np.ndarray, fill: int, extra: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequences at `index`, padded on the right to the longest plus `extra`; see `gather_padded`."""
        start = self.offsets[index]
        return gather_padded(self.flat, start, self.offsets[index + 1] - start, fill, extra)


def gather_padded(
    flat: np.ndarray | ShardedIds, start: np.ndarray, length: np.ndarray, fill: int, extra: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return spans of a flat array as rows: ids (B, S) padded with `fill`, and the mask of real ones (B, S).

    S is at least 1, so that a batch of empty texts still has a shape.
    """
    width = max(1, int(length.max(initial=0)) + extra)
    column = np.arange(width)
    real = column < length[:, None]
    rows = np.full(real.shape, fill, np.int64)
    rows[real] = flat[(start[:, None] + column)[real]]
    return rows, real

"""Which examples make a batch: plans of an epoch and of an evaluation, from lengths alone.

A plan is a sequence of index arrays and a pure function of lengths, settings and (seed, epoch), so a resumed run
goes on in the middle of one without replaying it. No text is read and no tensor made here.

Where examples stand alone an index array holds their numbers, (B,). Of a running text it holds windows, (B, 3),
and is computed where it is looked at: `windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from glassformer.config import TrainConfig

BatchPlan = Sequence[np.ndarray]

POOL_BATCHES = 100
"""Batches whose examples are sorted together: more pads less, fewer mixes lengths more freely."""


class LazyBatches(Sequence[np.ndarray]):
    """A plan whose entries are computed when they are asked for; a part of it is another such plan.

    Args:
        numbers: of the entries.
        entry: computes the entry of a number.
    """

    def __init__(self, numbers: range, entry: Callable[[int], np.ndarray]) -> None:
        self.numbers, self.entry = numbers, entry

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> LazyBatches: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | LazyBatches:
        found = self.numbers[index]
        return LazyBatches(found, self.entry) if isinstance(found, range) else self.entry(found)


def shuffled_length_buckets(cost: np.ndarray, tie: np.ndarray, train: TrainConfig, epoch: int) -> BatchPlan:
    """The batches of one epoch, in order; every example is in exactly one.

    Examples are shuffled, cut into pools of about a hundred batches, sorted by cost within a pool, cut by
    `max_tokens` (padding included) or `batch_size`, and the batches shuffled. Equal costs stay in their
    shuffled order, so the company an example keeps changes from epoch to epoch. An example that costs more
    than the budget is a batch of its own.

    Args:
        cost: (N,) what an example costs a batch: the width it forces, in tokens.
        tie: (N,) what to sort equal costs by.
        train: `seed`, `max_tokens` and `batch_size` are used.
        epoch: which one.
    """
    rng = np.random.default_rng([train.seed, epoch])
    order = rng.permutation(len(cost))
    mean = max(1.0, float(cost.mean() if len(cost) else 1))
    pool = max(1, round(POOL_BATCHES * (train.batch_size or train.max_tokens / mean)))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        chosen = order[start : start + pool]
        chosen = chosen[np.lexsort((tie[chosen], cost[chosen]))]
        batches += _cut(chosen, cost, train.max_tokens, train.batch_size)
    return [batches[i] for i in rng.permutation(len(batches))]


def length_buckets(cost: np.ndarray, max_tokens: int, tie: np.ndarray | None = None) -> BatchPlan:
    """Batches that visit every example once, by cost, dearest first (what does not fit in memory fails at once)."""
    order = np.lexsort((np.zeros_like(cost) if tie is None else tie, cost))
    return _cut(order, cost, max_tokens, None)[::-1]


def _cut(order: np.ndarray, cost: np.ndarray, max_tokens: int, batch_size: int | None) -> list[np.ndarray]:
    """Examples of ascending cost in runs with rows × largest cost ≤ max_tokens, or of batch_size rows."""
    if batch_size:
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    widths, batches, start = cost[order], [], 0
    while start < len(order):
        most = max(1, max_tokens // max(1, int(widths[start])))
        ahead = widths[start : start + most]
        fits = ahead * np.arange(1, len(ahead) + 1) <= max_tokens  # true, then false: both factors grow
        rows = max(1, int(np.count_nonzero(fits)))
        batches.append(order[start : start + rows])
        start += rows
    return batches

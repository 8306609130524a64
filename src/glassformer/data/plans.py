"""Which examples make a batch: plans of an epoch and of an evaluation, from lengths alone.

A plan is a list of index arrays and a pure function of lengths, settings and (seed, epoch), so a resumed run
goes on in the middle of one without replaying it. No text is read and no tensor made here.

Where examples stand alone an index array holds their numbers, (B,). Of a running text it holds windows, (B, 3):
a row (start, stop, first) reads ids[start:stop], predicts ids[start+1:stop+1], and scores the predicted tokens
from `first` on; the earlier ones are context, scored by another window.
"""

from __future__ import annotations

import numpy as np

from glassformer.config import TrainConfig

Plan = list[np.ndarray]

POOL_BATCHES = 100
"""Batches whose examples are sorted together: more pads less, fewer mixes lengths more freely."""


def shuffled_by_length(cost: np.ndarray, tie: np.ndarray, train: TrainConfig, epoch: int) -> Plan:
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
    batches: Plan = []
    for start in range(0, len(order), pool):
        chosen = order[start : start + pool]
        chosen = chosen[np.lexsort((tie[chosen], cost[chosen]))]
        batches += _cut(chosen, cost, train.max_tokens, train.batch_size)
    return [batches[i] for i in rng.permutation(len(batches))]


def by_length(cost: np.ndarray, max_tokens: int, tie: np.ndarray | None = None) -> Plan:
    """Batches that visit every example once, by cost, dearest first (what does not fit in memory fails at once)."""
    order = np.lexsort((np.zeros_like(cost) if tie is None else tie, cost))
    return _cut(order, cost, max_tokens, None)[::-1]


def shuffled_windows(n: int, max_len: int, train: TrainConfig, epoch: int) -> Plan:
    """The batches of one epoch of a running text of `n` tokens.

    The text is cut at a random place and from there on into windows of `max_len`; the windows are shuffled.
    Every token but the very first is predicted exactly once an epoch; the first and the last window may be
    shorter.
    """
    rng = np.random.default_rng([train.seed, epoch])
    cuts = np.arange(rng.integers(max_len), n - 1, max_len)
    edges = np.unique(np.concatenate([[0], cuts, [n - 1]]))
    windows = rng.permutation(np.stack([edges[:-1], edges[1:], edges[:-1] + 1], axis=1))
    rows = train.batch_size or max(1, train.max_tokens // max_len)
    return [windows[i : i + rows] for i in range(0, len(windows), rows)]


def overlapping_windows(n: int, max_len: int, max_tokens: int, stride: int | None = None) -> Plan:
    """Windows of `max_len` over `n` tokens in reading order, each `stride` (half of `max_len`) further.

    So every token but those of the first window is predicted with at least max_len - stride tokens of context;
    the last window is moved back so that it, too, is full.
    """
    stride = min(stride or max(1, max_len // 2), max_len)
    stops = np.append(np.arange(min(max_len, n - 1), n - 1, stride), n - 1)
    first = np.concatenate([[1], stops[:-1] + 1])
    windows = np.stack([np.maximum(stops - max_len, 0), stops, first], axis=1)
    rows = max(1, max_tokens // max_len)
    return [windows[i : i + rows] for i in range(0, len(windows), rows)]


def _cut(order: np.ndarray, cost: np.ndarray, max_tokens: int, batch_size: int | None) -> Plan:
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

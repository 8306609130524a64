"""Which examples make a batch: plans of an epoch and of an evaluation, from lengths alone.

A plan is a list of index arrays and a pure function of the corpus, the settings and (seed, epoch), so a
resumed run goes on in the middle of one without replaying it. No text is read and no tensor made here.

For `classify` and `translate` an index array holds example numbers, (B,). For `lm` it holds windows,
(B, 3): a row (start, stop, first) reads ids[start:stop], predicts ids[start+1:stop+1], and scores the
predicted tokens from `first` on; the earlier ones are context, scored by another window.
"""

from __future__ import annotations

import numpy as np

from glassformer.config import TaskName, TextConfig, TrainConfig
from glassformer.data.corpus import EncodedCorpus

POOL_BATCHES = 100
"""Batches whose examples are sorted together: more pads less, fewer mixes lengths more freely."""


def epoch_batches(
    corpus: EncodedCorpus, task: TaskName, train: TrainConfig, text: TextConfig, epoch: int
) -> list[np.ndarray]:
    """The batches of one epoch, in order; every example is in exactly one.

    Examples are shuffled, cut into pools of about a hundred batches, sorted by length within a pool, cut by
    `max_tokens` (padding included) or `batch_size`, and the batches shuffled. Equal lengths stay in their
    shuffled order, so the company an example keeps changes from epoch to epoch. An example longer than
    the budget is a batch of its own.

    For `lm` the text is cut at a random place and from there on into windows of `max_len`; the windows are
    shuffled. Every token but the very first is predicted exactly once an epoch.
    """
    rng = np.random.default_rng([train.seed, epoch])
    if task == "lm":
        windows = _training_windows(int(corpus.lengths[0]), text.max_len, rng)
        rows = train.batch_size or max(1, train.max_tokens // text.max_len)
        windows = rng.permutation(windows)
        return [windows[i : i + rows] for i in range(0, len(windows), rows)]

    first, second = _sort_keys(corpus, task)
    order = rng.permutation(len(corpus))
    if train.batch_size:
        pool = POOL_BATCHES * train.batch_size
    else:
        pool = max(
            1, round(POOL_BATCHES * train.max_tokens / max(1.0, float(first.mean() if len(first) else 1)))
        )
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        chosen = order[start : start + pool]
        chosen = chosen[np.lexsort((second[chosen], first[chosen]))]
        batches += _cut(chosen, first, train.max_tokens, train.batch_size)
    return [batches[i] for i in rng.permutation(len(batches))]


def eval_batches(
    corpus: EncodedCorpus, task: TaskName, max_tokens: int, text: TextConfig, stride: int | None = None
) -> list[np.ndarray]:
    """Batches that visit every example once, by length, longest first (what does not fit fails at once).

    For `lm`: windows of `max_len` in reading order, each `stride` (half of `max_len`) further, so that every
    token but those of the first window is predicted with at least max_len - stride tokens of context.
    """
    if task == "lm":
        windows = _evaluation_windows(
            int(corpus.lengths[0]), text.max_len, stride or max(1, text.max_len // 2)
        )
        rows = max(1, max_tokens // text.max_len)
        return [windows[i : i + rows] for i in range(0, len(windows), rows)]
    first, second = _sort_keys(corpus, task)
    order = np.lexsort((second, first))
    return _cut(order, first, max_tokens, None)[::-1]


def _sort_keys(corpus: EncodedCorpus, task: TaskName) -> tuple[np.ndarray, np.ndarray]:
    """What an example costs a batch (the width it forces), and what to sort equal costs by."""
    if task == "classify":
        return np.maximum(corpus.lengths, 1), np.zeros(len(corpus), np.int64)
    src, tgt = corpus.lengths, corpus.target_lengths + 1  # one for the start, or the end, token
    return np.maximum(src, tgt), src + tgt


def _cut(order: np.ndarray, cost: np.ndarray, max_tokens: int, batch_size: int | None) -> list[np.ndarray]:
    """Examples of ascending cost in runs with rows × largest cost ≤ max_tokens, or of batch_size rows."""
    if batch_size:
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    widths, batches, start = cost[order], [], 0
    while start < len(order):
        most = max(1, max_tokens // int(widths[start]))
        ahead = widths[start : start + most]
        fits = ahead * np.arange(1, len(ahead) + 1) <= max_tokens  # true, then false: both factors grow
        rows = max(1, int(np.count_nonzero(fits)))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def _training_windows(n: int, max_len: int, rng: np.random.Generator) -> np.ndarray:
    """Windows that cut n tokens at a random phase; the first and the last may be shorter."""
    cuts = np.arange(rng.integers(max_len), n - 1, max_len)
    edges = np.unique(np.concatenate([[0], cuts, [n - 1]]))
    return np.stack([edges[:-1], edges[1:], edges[:-1] + 1], axis=1)


def _evaluation_windows(n: int, max_len: int, stride: int) -> np.ndarray:
    """Overlapping windows; the last is moved back so that it, too, is full of context."""
    stops = np.append(np.arange(min(max_len, n - 1), n - 1, min(stride, max_len)), n - 1)
    starts = np.maximum(stops - max_len, 0)
    first = np.concatenate([[1], stops[:-1] + 1])
    return np.stack([starts, stops, first], axis=1)

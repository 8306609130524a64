"""Windows over a running text, shuffled or overlapping, computed where they are looked at.

However long the text is, a plan of it takes no memory and no time to make: a resumed run begins at any entry, and
every process of a run has the same. A window is a row (start, stop, first): it reads ids[start:stop], predicts
ids[start+1:stop+1], and scores the predicted tokens from `first` on; the earlier ones are context, scored by
another window.
"""

from __future__ import annotations

import numpy as np

from glassformer.config import TrainConfig
from glassformer.data.batch_sampler import BatchPlan, LazyBatches
from glassformer.data.permutation import Permutation

TABLE = 1 << 20
"""Up to so many windows their order is drawn as a table (8 MiB); beyond, it is computed where it is looked at."""


def shuffled_windows(n: int, max_len: int, train: TrainConfig, epoch: int) -> BatchPlan:
    """The batches of one epoch of a running text of `n` tokens, (B, 3) each.

    The text is cut at a random place and from there on into windows of `max_len`; the windows are shuffled.
    Every token but the very first is predicted exactly once an epoch; the first and the last window may be
    shorter.
    """
    rng = np.random.default_rng([train.seed, epoch])
    first_cut = int(rng.integers(max_len)) or max_len
    n_windows = 1 + max(0, -(-(n - 1 - first_cut) // max_len))
    order = rng.permutation(n_windows).__getitem__ if n_windows <= TABLE else Permutation(n_windows, rng)
    rows = train.batch_size or max(1, train.max_tokens // max_len)

    def batch(i: int) -> np.ndarray:
        which = order(np.arange(i * rows, min((i + 1) * rows, n_windows)))
        start = np.maximum(first_cut + (which - 1) * max_len, 0)
        stop = np.minimum(first_cut + which * max_len, n - 1)
        return np.stack([start, stop, start + 1], axis=1)

    return LazyBatches(range(-(-n_windows // rows)), batch)


def overlapping_windows(n: int, max_len: int, max_tokens: int, stride: int | None = None) -> BatchPlan:
    """Windows of `max_len` over `n` tokens in reading order, each `stride` (half of `max_len`) further.

    So every token but those of the first window is predicted with at least max_len - stride tokens of context;
    the last window is moved back so that it, too, is full.
    """
    stride = min(stride or max(1, max_len // 2), max_len)
    first_stop = min(max_len, n - 1)
    n_windows = 1 + -(-(n - 1 - first_stop) // stride)
    rows = max(1, max_tokens // max_len)

    def batch(i: int) -> np.ndarray:
        which = np.arange(i * rows, min((i + 1) * rows, n_windows))
        stop = np.minimum(first_stop + which * stride, n - 1)
        first = np.where(which == 0, 1, first_stop + (which - 1) * stride + 1)
        return np.stack([np.maximum(stop - max_len, 0), stop, first], axis=1)

    return LazyBatches(range(-(-n_windows // rows)), batch)

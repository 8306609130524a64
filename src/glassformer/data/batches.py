"""Batches: the plans of an epoch and of an evaluation, and a batch of examples as padded tensors.

How a task's columns become a batch, and where labels are shifted, is in the task's own file.

A plan is a list of index arrays, and a pure function of lengths, settings, seed and epoch, so a resumed run continues
at any batch without replay. Examples that stand alone are given by position, (B,). Running text is read in windows,
(B, 3). A window (start, stop, first) reads ids[start:stop], predicts ids[start+1:stop+1], and scores the predicted
tokens from `first` on; earlier ones are context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import TrainConfig
from glassformer.data.corpus import EncodedCorpus
from glassformer.nn.ngram_embeddings import NgramBatch


@dataclass(frozen=True)
class Batch:
    """Some examples, padded on the right to the longest of them.

    Args:
        ids: what goes in: texts, sources, or windows of a running text.
        padding_mask: True at real tokens of `ids`; None when there is no padding.
        labels: one an example (B,), a class or a number, or one a token (B, T) with -100 where nothing is scored.
        tgt_in: what a decoder is given beside `ids`, a start token and the target; None without one.
        index: which examples these are (of a running text: where the windows begin).
        n_tokens: real tokens that go in, source and target together.
        n_labels: labels that are scored.
        ngram_batch: how the tokens of `ids` are spelled, for models with n-grams.
    """

    ids: Int[Tensor, "B S"]
    padding_mask: Bool[Tensor, "B S"] | None
    labels: Int[Tensor, " B"] | Int[Tensor, "B T"] | Float[Tensor, " B"]
    tgt_in: Int[Tensor, "B T"] | None
    index: np.ndarray
    n_tokens: int
    n_labels: int
    ngram_batch: NgramBatch | None = None

    @property
    def n_slots(self) -> int:
        """Return the number of input tokens, padding included."""
        return self.ids.numel() + (0 if self.tgt_in is None else self.tgt_in.numel())

    def to(self, device: torch.device | str) -> Batch:
        """Return a copy on that device."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor | NgramBatch)}
        return replace(self, **{name: x.to(device) for name, x in tensors.items()})


def padding_mask_of(real: np.ndarray) -> Bool[Tensor, "B S"] | None:
    """Return the mask of real tokens, or None if there is no padding."""
    return None if real.all() else torch.from_numpy(real)


def ngrams_of_batch(corpus: EncodedCorpus, index: np.ndarray) -> NgramBatch | None:
    """Return the n-grams of the texts at `index`, each distinct word once; None if the corpus has none."""
    if corpus.surfaces is None or corpus.ngrams is None:
        return None
    surfaces, _ = corpus.surfaces.padded(index, 0)
    distinct, rows = np.unique(np.append(0, surfaces), return_inverse=True)  # row 0 has no n-grams, for padding
    ngrams, _ = corpus.ngrams.padded(distinct, 0)
    rows = rows.ravel()[1:].reshape(len(index), -1)
    return NgramBatch(torch.from_numpy(rows), torch.from_numpy(ngrams))


BatchPlan = Sequence[np.ndarray]

POOL_BATCHES = 100
"""Batches whose examples are sorted together: more of them pad less and mix lengths less."""


def shuffled_length_buckets(cost: np.ndarray, tie: np.ndarray, train: TrainConfig, epoch: int) -> BatchPlan:
    """Return the batches of one epoch; every example is in exactly one.

    Examples are shuffled and divided into pools of about a hundred batches. A pool is sorted by cost and divided by
    `max_tokens` (padding included) or `batch_size`; then all batches are shuffled. Equal costs keep their shuffled
    order, so batches differ between epochs. An example above the budget is a batch of its own. `cost` (N,) is the width
    of a batch, in tokens, that an example requires; equal ones are sorted by `tie` (N,).
    """
    rng = np.random.default_rng([train.seed, epoch])
    order = rng.permutation(len(cost))
    mean = max(1.0, float(cost.mean() if len(cost) else 1))
    pool_size = max(1, round(POOL_BATCHES * (train.batch_size or train.max_tokens / mean)))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool_size):
        pooled = order[start : start + pool_size]
        pooled = pooled[np.lexsort((tie[pooled], cost[pooled]))]
        batches += _divide(pooled, cost, train.max_tokens, train.batch_size)
    return [batches[i] for i in rng.permutation(len(batches))]


def length_buckets(cost: np.ndarray, max_tokens: int, tie: np.ndarray | None = None) -> BatchPlan:
    """Return batches of all examples, the widest first, so that running out of memory shows at once."""
    order = np.lexsort((np.zeros_like(cost) if tie is None else tie, cost))
    return _divide(order, cost, max_tokens, None)[::-1]


def _divide(order: np.ndarray, cost: np.ndarray, max_tokens: int, batch_size: int | None) -> list[np.ndarray]:
    """Divide examples of ascending cost into batches with rows × largest cost ≤ max_tokens, or of batch_size rows."""
    if batch_size:
        return _rows(order, batch_size)
    widths, batches, start = cost[order], [], 0
    while start < len(order):
        limit = max(1, max_tokens // max(1, int(widths[start])))
        ahead = widths[start : start + limit]
        # True, then False, because both factors grow.
        fits = ahead * np.arange(1, len(ahead) + 1) <= max_tokens
        rows = max(1, int(np.count_nonzero(fits)))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def shuffled_windows(n: int, max_len: int, train: TrainConfig, epoch: int) -> BatchPlan:
    """Return the batches of one epoch over running text of `n` tokens, (B, 3) each, in shuffled order.

    Windows of `max_len` begin at a random offset. Every token but the very first is predicted exactly once; the first
    and the last window may be shorter. The plan takes 24 bytes a window: 240 MB for ten billion tokens in windows of
    1,024.
    """
    rng = np.random.default_rng([train.seed, epoch])
    first_cut = int(rng.integers(max_len)) or max_len
    which = rng.permutation(1 + max(0, -(-(n - 1 - first_cut) // max_len)))
    start = np.maximum(first_cut + (which - 1) * max_len, 0)
    stop = np.minimum(first_cut + which * max_len, n - 1)
    return _rows(np.stack([start, stop, start + 1], axis=1), train.batch_size or max(1, train.max_tokens // max_len))


def overlapping_windows(n: int, max_len: int, max_tokens: int) -> BatchPlan:
    """Return windows of `max_len` over `n` tokens in reading order, half of `max_len` apart.

    Every token outside the first window is predicted with at least half of `max_len` tokens of context; the last
    window is moved back so that it is full.
    """
    stride = max(1, max_len // 2)
    first_stop = min(max_len, n - 1)
    which = np.arange(1 + -(-(n - 1 - first_stop) // stride))
    stop = np.minimum(first_stop + which * stride, n - 1)
    first = np.where(which == 0, 1, first_stop + (which - 1) * stride + 1)
    return _rows(np.stack([np.maximum(stop - max_len, 0), stop, first], axis=1), max(1, max_tokens // max_len))


def _rows(plan: np.ndarray, n: int) -> list[np.ndarray]:
    return [plan[i : i + n] for i in range(0, len(plan), n)]

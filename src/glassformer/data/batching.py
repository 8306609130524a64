"""A batch of a corpus as padded tensors. Labels are shifted here and nowhere else.

Which examples belong together is decided in `plans.py`, whose two functions are offered here too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.config import TaskName
from glassformer.data.corpus import EncodedCorpus, Ragged
from glassformer.data.plans import epoch_batches, eval_batches

__all__ = ["IGNORE_INDEX", "Batch", "epoch_batches", "eval_batches", "make_batch"]

IGNORE_INDEX = -100
"""The label of a position that is not scored."""


@runtime_checkable
class SpecialIds(Protocol):
    """The ids a batch needs to know; a tokenizer has them."""

    @property
    def pad_id(self) -> int: ...
    @property
    def bos_id(self) -> int: ...
    @property
    def eos_id(self) -> int: ...


@dataclass(frozen=True)
class Batch:
    """Some examples, padded on the right to the longest of them.

    Args:
        ids: the texts, the sources, or the windows of a running text.
        padding_mask: True at real tokens of `ids`; None when there is no padding.
        labels: classify: the classes (B,). translate, lm: the next tokens (B, T), -100 where unscored.
        tgt_in: translate: what the decoder is given, a start token and the target.
        index: which examples these are (lm: where the windows begin).
        n_tokens: real tokens that go in, source and target together.
        n_labels: labels that are scored.
    """

    ids: Int[Tensor, "B S"]
    padding_mask: Bool[Tensor, "B S"] | None
    labels: Int[Tensor, " B"] | Int[Tensor, "B T"]
    tgt_in: Int[Tensor, "B T"] | None
    index: np.ndarray
    n_tokens: int
    n_labels: int

    @property
    def n_examples(self) -> int:
        """Rows."""
        return self.ids.shape[0]

    @property
    def n_slots(self) -> int:
        """Tokens that go in, padding included."""
        return self.ids.numel() + (0 if self.tgt_in is None else self.tgt_in.numel())

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""

        def move(x: Tensor) -> Tensor:
            return x.to(device, non_blocking=True)

        return replace(
            self,
            ids=move(self.ids),
            padding_mask=None if self.padding_mask is None else move(self.padding_mask),
            labels=move(self.labels),
            tgt_in=None if self.tgt_in is None else move(self.tgt_in),
        )


def make_batch(corpus: EncodedCorpus, task: TaskName, index: np.ndarray, special: SpecialIds) -> Batch:
    """Gather, shift and pad one entry of a plan.

    Args:
        corpus: where the ids are.
        task: what the index means, see `plans.py`.
        index: example numbers (B,), or windows (B, 3) for `lm`.
        special: the tokenizer, or anything that knows its special ids.
    """
    index = np.asarray(index, np.int64)
    match task:
        case "classify":
            return _classify(corpus, index, special)
        case "translate":
            return _translate(corpus, index, special)
        case "lm":
            return _running_text(corpus, index, special)


def _classify(corpus: EncodedCorpus, index: np.ndarray, special: SpecialIds) -> Batch:
    if corpus.labels is None:
        raise ValueError("a corpus to classify needs labels")
    ids, real = _gather(corpus.ids, index, special.pad_id)
    labels = torch.from_numpy(corpus.labels[index].astype(np.int64))
    return Batch(torch.from_numpy(ids), _mask(real), labels, None, index, int(real.sum()), len(index))


def _translate(corpus: EncodedCorpus, index: np.ndarray, special: SpecialIds) -> Batch:
    """tgt_in begins with the start token, labels end with the end token: shifted by one."""
    if corpus.target is None:
        raise ValueError("a corpus to translate needs targets")
    ids, real = _gather(corpus.ids, index, special.pad_id)
    target, is_target = _gather(corpus.target, index, special.pad_id, extra=1)
    lengths = is_target.sum(axis=1)
    labels = np.where(is_target, target, IGNORE_INDEX)
    labels[np.arange(len(index)), lengths] = special.eos_id
    tgt_in = np.roll(target, 1, axis=1)  # the last column is always padding
    tgt_in[:, 0] = special.bos_id
    n_labels = int(lengths.sum()) + len(index)
    return Batch(
        torch.from_numpy(ids), _mask(real), torch.from_numpy(labels), torch.from_numpy(tgt_in), index,
        n_tokens=int(real.sum()) + n_labels, n_labels=n_labels,
    )  # fmt: skip


def _running_text(corpus: EncodedCorpus, windows: np.ndarray, special: SpecialIds) -> Batch:
    """labels are ids one further on; those before a window's `first` token are only context."""
    start, stop, first = windows.T
    ids, real = _spans(corpus.ids.flat, start, stop - start, special.pad_id)
    labels, _ = _spans(corpus.ids.flat, start + 1, stop - start, IGNORE_INDEX)
    position = start[:, None] + 1 + np.arange(ids.shape[1])
    labels[position < first[:, None]] = IGNORE_INDEX
    n_labels = int((stop + 1 - first).sum())
    return Batch(
        torch.from_numpy(ids), _mask(real), torch.from_numpy(labels), None, start,
        n_tokens=int(real.sum()), n_labels=n_labels,
    )  # fmt: skip


def _gather(column: Ragged, index: np.ndarray, fill: int, extra: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The sequences at `index`, padded to the longest and `extra` more; see `_spans`."""
    start = column.offsets[index]
    return _spans(column.flat, start, column.offsets[index + 1] - start, fill, extra)


def _spans(
    flat: np.ndarray, start: np.ndarray, length: np.ndarray, fill: int, extra: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Spans of a flat array as rows: ids (B, S) padded with `fill`, and which of them are real (B, S).

    S is at least 1, so that a batch of empty texts still has a shape.
    """
    width = max(1, int(length.max(initial=0)) + extra)
    column = np.arange(width)
    real = column < length[:, None]
    rows = np.full(real.shape, fill, np.int64)
    rows[real] = flat[(start[:, None] + column)[real]]
    return rows, real


def _mask(real: np.ndarray) -> Tensor | None:
    return None if real.all() else torch.from_numpy(real)

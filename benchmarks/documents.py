"""Made-up documents as batches of one shape: each padded to a row of its own, or several packed into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.data.batching import Batch
from glassformer.nn.cross_entropy import IGNORE_INDEX


@dataclass(frozen=True)
class Size:
    """The model and an update: `n_documents` of up to `max_len` tokens."""

    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    vocab_size: int = 50_304
    max_len: int = 1024
    n_documents: int = 128
    loss_rows: int = 8192


TINY = Size(32, 2, 2, 300, 32, 16, 64)


@dataclass(frozen=True)
class PackedBatch(Batch):
    """Rows of several documents; `segments` numbers them, (B, T), and is None where a row is one document."""

    segments: Tensor | None = None


def lengths_of(size: Size) -> np.ndarray:
    """(n_documents,) tokens of each: evenly from an eighth of a row to a whole one."""
    return np.linspace(size.max_len / 8, size.max_len, size.n_documents).astype(int)[::-1]


def rows_of(lengths: np.ndarray, max_len: int, packed: bool) -> list[list[int]]:
    """Which documents share a row: each has its own, or the longest that still fits joins (first fit)."""
    rows: list[list[int]] = []
    for i, n in enumerate(lengths):
        free = (row for row in rows if packed and lengths[row].sum() + n <= max_len)
        if (row := next(free, None)) is None:
            rows.append(row := [])
        row.append(i)
    return rows


def batches_of(size: Size, pieces: int, packed: bool, step: int) -> Iterator[PackedBatch]:
    """The batches of an update, all of one shape: documents are dealt out by length, then laid into rows."""
    rng, lengths = np.random.default_rng([7, step]), lengths_of(size)
    words = 1 / (np.arange(size.vocab_size - 5) + 2.7)
    documents = [5 + rng.choice(len(words), n, p=words / words.sum()) for n in lengths]
    shares = [range(first, size.n_documents, pieces) for first in range(pieces)]
    laid = [rows_of(lengths[list(share)], size.max_len, packed) for share in shares]
    n_rows = max(map(len, laid))
    for share, rows in zip(shares, laid, strict=True):
        ids = np.zeros((n_rows, size.max_len), np.int64)
        labels, segments = np.full_like(ids, IGNORE_INDEX), np.full_like(ids, len(lengths))
        for i, row in enumerate(rows):
            at = 0
            for k, document in enumerate(documents[share[j]] for j in row):
                end = at + len(document)
                ids[i, at:end], segments[i, at:end] = document, k
                labels[i, at : end - 1] = document[1:]
                at = end
        n = int(lengths[list(share)].sum())
        told = torch.from_numpy(segments) if packed else None
        yield PackedBatch(
            torch.from_numpy(ids), None, torch.from_numpy(labels), None, np.array(share), n, n - len(share),
            segments=told,
        )  # fmt: skip

"""Recognise the positions of a CTranslate2 model: the paper's sinusoids, none, or a table, which is learned positions.

An export of ours always has a table. A model that OpenNMT trained has none: CTranslate2 computes sinusoids in an order
of its own, which are made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from glassformer.nn.embeddings import sinusoidal

DEFAULT_POSITIONS = 512
"""Positions of a model whose file has no table of them."""


@dataclass
class FoundPositions:
    """Positions in our terms.

    Attributes:
        kind: a value of `ModelConfig.positions`.
        tables: one of each stack, of `n` rows.
        n: the longest text, in tokens.
        amplitude: of sinusoids; None of others.
        notes: what was made or cut, a sentence each.
    """

    kind: Literal["sinusoidal", "learned", "none"]
    tables: list[np.ndarray]
    n: int
    amplitude: float | None = None
    notes: list[str] = field(default_factory=list)


def find_positions(
    given: Sequence[np.ndarray | None], d_model: int, most: int | None, any_amplitude: bool
) -> FoundPositions:
    """Return the positions of stacks whose files have these tables (P, D), or None.

    Args:
        given: the table of each stack.
        d_model: the width D, even.
        most: rows to keep, or to make where there is no table.
        any_amplitude: whether our sinusoids can have another amplitude than 1, beside embeddings without a factor.
    """
    tables = [own_sinusoids(most or DEFAULT_POSITIONS, d_model) if table is None else table for table in given]
    longest, n = max(map(len, tables)), min(map(len, tables))
    n = min(n, most or n)
    notes = [f"{longest - n:,} positions after the first {n:,} were left out"] if n < longest else []
    tables = [table[:n] for table in tables]
    amplitudes = {_amplitude(table) for table in tables}
    [amplitude] = amplitudes if len(amplitudes) == 1 else [None]
    if not any(table.any() for table in tables):
        return FoundPositions("none", tables, n, None, notes)
    if amplitude is not None and (any_amplitude or amplitude == 1):
        return FoundPositions("sinusoidal", tables, n, amplitude, notes)
    if any(table is None for table in given):
        notes.append("the sinusoids of CTranslate2, which are not the paper's, became learned positions")
    return FoundPositions("learned", tables, n, None, notes)


def own_sinusoids(n_positions: int, d_model: int) -> np.ndarray:
    """Return the positions (L, D) that CTranslate2 computes where its file has none.

    Sines fill the first half of the features and cosines the second; positions count from 1; and the frequencies are a
    geometric series whose last is 1/10000, where the paper's ends before it.
    """
    half = d_model // 2
    step = np.float32(math.log(10_000)) / np.float32(max(half - 1, 1))
    frequency = np.exp(-step * np.arange(half, dtype=np.float32))
    angle = np.arange(1, n_positions + 1, dtype=np.float32)[:, None] * frequency
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def _amplitude(table: np.ndarray) -> float | None:
    """Return the amplitude of the paper's sinusoids in a table, or None if it holds others."""
    if not len(table) or table.shape[1] < 2 or table[0, 1] <= 0:
        return None
    amplitude = float(str(table[0, 1]))  # cos(0), as the shortest decimal that is this number
    ours = (sinusoidal(*table.shape) * amplitude).numpy()
    return amplitude if np.array_equal(ours, table) else None

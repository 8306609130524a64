"""Read the log of a training while it grows, and thin it for a drawing.

Only what came since the last look is read. A log that was replaced, as where a run is resumed, is read again.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path

from glassformer.runs.records import StepMetrics, read_log_lines
from glassformer.utils import safe_read
from glassformer.utils.safe_read import LIMITS

MAX_POINTS = 2000
"""Most points of a curve that are sent at once."""
WHOLE = 500
"""Newest points that are never thinned."""


class GrowingLog:
    """The lines of `metrics.jsonl` so far.

    Args:
        path: the log, which need not exist yet.

    Attributes:
        rows: one for each step, in order; of a step that was logged twice the later line.
        damaged: numbers of the lines that are none of a log, which are left out.
        generation: how often the log was read again from the start, so that who holds earlier rows drops them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[StepMetrics] = []
        self.damaged: list[int] = []
        self.generation = 0
        self._inode, self._offset, self._n_lines = -1, 0, 0

    def update(self) -> None:
        """Read the whole lines that were written since; one that is still being written is waited for."""
        try:
            state = os.stat(self.path)
        except OSError:
            self._restart(-1)
            return
        if state.st_ino != self._inode or state.st_size < self._offset:
            self._restart(state.st_ino)
        if state.st_size == self._offset:
            return
        with safe_read.open_regular(self.path, LIMITS["log"]) as file:
            file.seek(self._offset)
            data = file.read(LIMITS["log"])
        whole = data[: data.rfind(b"\n") + 1]
        rows = read_log_lines(whole, self.path, self.damaged, self._n_lines + 1)
        self._offset, self._n_lines = self._offset + len(whole), self._n_lines + whole.count(b"\n")
        steps = [row.step for row in (*self.rows[-1:], *rows)]
        self.rows = [*self.rows, *rows]
        if any(after <= before for before, after in itertools.pairwise(steps)):  # some were done again
            self.rows = sorted({row.step: row for row in self.rows}.values(), key=lambda row: row.step)
            self.generation += 1

    def _restart(self, inode: int) -> None:
        if self.rows:
            self.generation += 1
        self.rows, self.damaged, self._inode, self._offset, self._n_lines = [], [], inode, 0, 0


def thinned(rows: Sequence[StepMetrics], most: int = MAX_POINTS, whole: int = WHOLE) -> list[StepMetrics]:
    """Return at most so many rows: the newest as they are, of each stretch before them the lowest and highest loss.

    So no spike of the loss is lost, and the curve has the outline of the whole one.
    """
    if len(rows) <= most:
        return list(rows)
    old, new = rows[:-whole], rows[-whole:]
    n_stretches = (most - whole) // 2
    kept: list[StepMetrics] = []
    for i in range(n_stretches):
        stretch = old[i * len(old) // n_stretches : (i + 1) * len(old) // n_stretches]
        low, high = (choose(stretch, key=_loss) for choose in (min, max))
        kept += [low] if low is high else sorted((low, high), key=lambda row: row.step)
    return [*kept, *new]


def spread(rows: Sequence[StepMetrics], most: int) -> list[StepMetrics]:
    """Return at most so many rows at equal distances, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i * (len(rows) - 1) // (most - 1)] for i in range(most)]


def _loss(row: StepMetrics) -> float:
    return row.loss if math.isfinite(row.loss) else math.inf

"""Declares what a task reads from a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glassformer.data.datasets.columns import ColumnSpec, Rows
from glassformer.data.diagnostics import Diagnostics


@dataclass(frozen=True)
class DataSchema:
    """A task's input: texts with targets, texts alone, or running text.

    Args:
        task: its name, for messages.
        columns: the columns of a table, (text, target), or (text,) alone; None for running text.
        parallel: whether two files with matching lines may replace a table.
        check: reports targets that cannot be used, given the rows of all parts ("train", "valid", "test").
    """

    task: str
    columns: tuple[ColumnSpec, ...] | None = None
    parallel: bool = False
    check: Callable[[Mapping[str, Rows], Diagnostics], None] = lambda rows, diagnostics: None

    @property
    def target(self) -> str | None:
        """Name of the targets ("label", "target"); "" for texts alone, None for running text."""
        if self.columns is None:
            return None
        return self.columns[1].name if len(self.columns) > 1 else ""

    def accepts(self, target: str | None) -> bool:
        """Return whether a data set with these targets can be read; labels and document borders may be ignored."""
        return target == self.target or (self.target == "" and target != "target")

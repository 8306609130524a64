"""What a task asks of a data set: the words in which data and tasks speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glassformer.data.datasets.columns import Roles, Rows
from glassformer.data.diagnostics import Findings


@dataclass(frozen=True)
class Form:
    """What a task reads: texts with answers, texts alone, or running text.

    Args:
        task: its name, for messages.
        roles: the columns of a table, (text, answer), or (text,) alone; None for running text.
        parallel: whether two files that belong together line by line will do, too.
        check: looks at the rows of all parts ("train", "valid", "test") and notes answers that cannot be used;
            nothing where any answer is as good as another.
    """

    task: str
    roles: Roles | None = None
    parallel: bool = False
    check: Callable[[Mapping[str, Rows], Findings], None] = lambda rows, findings: None

    @property
    def answers(self) -> str | None:
        """What the answers are called ("label", "target"); "" for texts alone, None for running text."""
        if self.roles is None:
            return None
        return self.roles[1].name if len(self.roles) > 1 else ""

    def accepts(self, held: str | None) -> bool:
        """Whether a data set of these answers will do; texts alone are also found beside labels and in running text."""
        return held == self.answers or (self.answers == "" and held != "target")

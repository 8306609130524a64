"""What a task asks of a data set: the words in which data and tasks speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glassformer.data.columns import Roles, Rows
from glassformer.data.reading import Findings


@dataclass(frozen=True)
class Form:
    """What a task reads: texts with answers, or running text.

    Args:
        task: its name, for messages.
        roles: the columns of a table, (text, answer); None for running text.
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
        """What the answers are called ("label", "target"); None where there are none."""
        return None if self.roles is None else self.roles[1].name

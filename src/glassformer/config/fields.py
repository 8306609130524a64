"""Field declarations: numbers with an interval, texts with a length, and sections that another field selects."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any


def number(default: Any, interval: str) -> Any:
    """Return a field for a number in an interval, written as in mathematics; an optional field may also be None."""
    return field(default=default, metadata={"interval": interval})


def string(longest: int, default: Any = MISSING, form: tuple[str, str] = ("", "")) -> Any:
    """Return a field for Unicode text of limited length; `form` is an expression that it must match, in words too."""
    metadata = {"longest": longest} | ({"form": form} if form[0] else {})
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


BY_DATASET, BY_OPTIMIZER = {"chooser": "dataset"}, {"chooser": "optimizer"}
"""What marks a section that counts only while the field named here, beside it, says its name."""


def idle(section: Any) -> list[str]:
    """Return the names of the inner sections that have no effect, since another one is selected."""
    selectable = [f for f in fields(section) if "chooser" in f.metadata]
    return [f.name for f in selectable if getattr(section, f.metadata["chooser"]) != f.name]


@cache
def docstrings(cls: type) -> dict[str, str]:
    """Return the docstring under each field of a dataclass or `TypedDict`, with inherited fields."""
    docs: dict[str, str] = {}
    for base in reversed([c for c in cls.__mro__ if "__annotations__" in vars(c)]):
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for line, after in itertools.pairwise(body):
            if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr):
                docs[ast.unparse(line.target)] = ast.literal_eval(after.value)
    return docs

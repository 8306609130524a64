"""The line of this package that computes a step, with a few around it, looked up once; which it is says `sites.py`."""

from __future__ import annotations

import inspect
import textwrap
from functools import cache
from pathlib import Path

from glassformer.explain.capture.records import SourceLine
from glassformer.explain.capture.sites import SITES

PACKAGE = Path(__file__).parents[2]
AROUND = 4
"""Lines shown before and after the marked one."""


@cache
def source_of(key: str) -> SourceLine | None:
    """The line that does the step of a key of `SITES`; None where no line of ours does, or without source files."""
    site = SITES.get(key)
    if site is None or site.line is None:
        return None
    function, piece = site.line
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").resolve().relative_to(PACKAGE.resolve())
    except (OSError, TypeError, ValueError):
        return None  # an installation without .py files, or from a zip
    mark = _find(lines, piece)
    if mark is None:
        return None
    start, end = max(0, mark - AROUND), min(len(lines), mark + AROUND + 1)
    while not lines[start].strip():
        start += 1
    code = textwrap.dedent("".join(lines[start:end])).rstrip()
    return SourceLine(file.as_posix(), first + start, first + mark, code)


def _find(lines: list[str], piece: str) -> int | None:
    """Index of the first line with that piece, docstrings left out."""
    inside = False
    for i, line in enumerate(lines):
        quotes = line.count('"""')
        if not inside and not quotes and piece in line:
            return i
        if quotes == 1:
            inside = not inside
    return None

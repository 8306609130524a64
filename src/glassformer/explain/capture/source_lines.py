"""Find the source line that computes a step, as named in `sites.py`."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from glassformer.explain.capture.sites import SITES

PACKAGE = Path(__file__).parents[2]
N_CONTEXT_LINES = 4
"""Lines shown before and after the marked one."""


@dataclass(frozen=True)
class SourceLine:
    """The source line of this package that computes a record."""

    file: str
    """Path relative to the package: "nn/attention.py"."""
    line: int
    """Line number of the first line of `code`."""
    mark: int
    """Line number of the line that computes the record."""
    code: str
    """That line with a few lines around it, dedented."""

    @property
    def marked(self) -> str:
        """Return the text of the marked line."""
        return self.code.splitlines()[self.mark - self.line].strip()


@cache
def source_of(key: str) -> SourceLine | None:
    """Return the source line of a key of `SITES`; None where there is none, or without source files."""
    site = SITES.get(key)
    if site is None or site.line is None:
        return None
    function, snippet = site.line
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").resolve().relative_to(PACKAGE.resolve())
    except (OSError, TypeError, ValueError):
        # An installation without .py files, or from a zip.
        return None
    mark = _find(lines, snippet)
    if mark is None:
        return None
    start, end = max(0, mark - N_CONTEXT_LINES), min(len(lines), mark + N_CONTEXT_LINES + 1)
    while not lines[start].strip():
        start += 1
    code = textwrap.dedent("".join(lines[start:end])).rstrip()
    return SourceLine(file.as_posix(), first + start, first + mark, code)


def _find(lines: list[str], snippet: str) -> int | None:
    """Return the index of the first line with the snippet outside docstrings."""
    inside = False
    for i, line in enumerate(lines):
        quotes = line.count('"""')
        if not inside and not quotes and snippet in line:
            return i
        if quotes == 1:
            inside = not inside
    return None

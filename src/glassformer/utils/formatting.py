"""Numbers in words: how the report, the model card and the plots write scores, shares and times.

One place, so that a number looks the same wherever it is read. Nothing here knows where it comes from; which
metric is written how is said in `evaluate/metrics.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

Number = float | int
"""What JSON calls a number: a share of 1 may come back from it as an integer."""


def percent(share: Number, digits: int = 1) -> str:
    """Write a share as a percentage, never rounding a small count of something to a flat zero."""
    if 0 < share < 0.5 * 10 ** -(digits + 2):
        return f"under {10**-digits:g}%"
    return f"{100 * share:.{digits}f}%"


def number(value: Number) -> str:
    """Write a number to three or four significant digits, without needless exponents."""
    if value != value:
        return "not a number"
    if value == 0:
        return "0"
    if abs(value) >= 999.95:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{value:.3g}" if abs(value) < 0.1 else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def counted(n: int, units: str) -> str:
    """Write how many there are of something whose plural ends in s: `3,257 examples`, `1 example`."""
    return f"{n:,} {units.removesuffix('s') if n == 1 else units}"


def duration(seconds: Number) -> str:
    """Write seconds as 5.3 s, 42 s, 3 min 05 s or 2 h 05 min."""
    seconds = max(0, seconds)
    rounded = round(seconds)
    if rounded < 60:
        return f"{round(seconds, 1):g} s" if seconds < 9.95 else f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> str:
    """Return a Markdown table; the first `left` columns flush left, the others right.

    Cells may hold anything a user's data holds: bars and line breaks in them cannot break the table.
    """
    rule = ["---" if column < left else "---:" for column in range(len(header))]
    lines = [header, rule, *[map(cell_text, row) for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shortened(text: str, longest: int) -> str:
    """Return text on one line, its end left out where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def cell_text(value: Any, longest: int = 300) -> str:
    """Return text that Markdown shows as it is, on one line and not too long.

    A review may hold anything, and a report is opened in viewers that render links, images and HTML.
    """
    text = shortened(str(value), longest)
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text).replace("<", "&lt;")


def code(value: Any) -> str:
    """Return text as an inline code span, on one line."""
    return "`" + " ".join(str(value).replace("`", "'").split()) + "`"


def fenced(text: str, language: str = "") -> str:
    """Return a Markdown code block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def quoted(text: str) -> str:
    """Return text as a Markdown quotation."""
    return "\n".join(f"> {line}" for line in text.strip().split("\n"))


def glassformer_command(*words: object) -> str:
    """Return a command of the package as a shell reads it: words with spaces or other special characters quoted."""
    return shlex.join(["glassformer", *map(str, words)])

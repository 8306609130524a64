"""The only place that talks to people: messages go to stderr, what was asked for goes to stdout.

Colour and bars appear only on a terminal, and never under `NO_COLOR` or `TERM=dumb`; rich is imported
only then. Libraries below the commands do not print: they return what there is to say.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glassformer.utils.atomic_io import finite

if TYPE_CHECKING:
    from rich.console import Console


_floor: bool | None = None


def take_floor(talks: bool) -> None:
    """Let this process talk, or not, whatever its number: the first may be the one that is lost."""
    global _floor
    _floor = talks


def speaks() -> bool:
    """Whether this process talks: of several of one run, started by `torchrun`, only the first."""
    if _floor is not None:
        return _floor
    return int(os.environ.get("RANK", "0")) == 0 or int(os.environ.get("WORLD_SIZE", "1")) == 1


def say(text: str, style: str | None = None) -> None:
    """Tell a person something, on stderr; the style is for terminals."""
    if sys.stderr is None or not speaks():  # None: a Windows program without a console
        return
    if is_terminal(sys.stderr):
        stderr_console().print(text, style=style, soft_wrap=True)
    else:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def warn(text: str) -> None:
    """Tell a person that something is not as it should be, on stderr."""
    say(f"warning: {text}", style="yellow")


def fail(message: str, hint: str = "") -> None:
    """One line that says what went wrong and, where known, one with what to do about it."""
    say(f"error: {message}", style="bold red")
    if hint:
        say(f"hint: {hint}", style="cyan")


def write(text: str) -> None:
    """Give what was asked for, on stdout, one line; flushed, so that a pipe sees it at once."""
    if speaks():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def write_json(value: Any) -> None:
    """One JSON object on a line of stdout; a number that is none becomes null, as JSON has no NaN."""
    write(json.dumps(finite(value), ensure_ascii=False, allow_nan=False))


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout: drawn by rich on a terminal, aligned plain text elsewhere."""
    if not is_terminal(sys.stdout):
        write(plain_table(columns, rows))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, header_style="bold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    _console(sys.stdout).print(table)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns separated by two spaces, under a header and a rule."""
    cells = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    lines = ["  ".join(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _width(text: str) -> int:
    """Columns a text takes: Chinese and Japanese characters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def is_terminal(stream: Any) -> bool:
    """Whether a person watches this stream on a terminal that can draw."""
    if stream is None or getattr(stream, "closed", False) or os.environ.get("TERM") == "dumb" or not speaks():
        return False
    return stream.isatty()


def stderr_console() -> Console:
    """The rich console of stderr, for progress bars; ask `is_terminal(sys.stderr)` first."""
    return _console(sys.stderr)


@functools.lru_cache(maxsize=2)  # one of stdout, one of stderr
def _console(stream: Any) -> Console:
    """One console a stream, so that messages appear above a running progress bar instead of through it."""
    from rich.console import Console

    # rich itself leaves colour out under NO_COLOR. Text is never read as markup: it may hold "[PAD]".
    return Console(file=stream, markup=False, highlight=False, emoji=False)

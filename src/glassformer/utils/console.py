"""Write to the terminal: log messages and errors to stderr, results to stdout.

Colours and progress bars appear only on a terminal, and never under `NO_COLOR` or `TERM=dumb`; rich is imported only
then. Libraries below the commands log through `logging.getLogger(__name__)` and do not use this module's writers.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from glassformer.utils.atomic_io import finite

if TYPE_CHECKING:
    from rich.console import Console


_is_main: bool | None = None


def set_main_process(is_main: bool) -> None:
    """Let this process write, or not, whatever its rank: rank 0 may be the process that was lost."""
    global _is_main
    _is_main = is_main


def is_main_process() -> bool:
    """Return whether this process writes to the terminal: of the processes of `torchrun`, only rank 0 does."""
    if _is_main is not None:
        return _is_main
    return int(os.environ.get("RANK", "0")) == 0 or int(os.environ.get("WORLD_SIZE", "1")) == 1


class StderrHandler(logging.Handler):
    """Logging handler that writes to stderr, above a running progress bar, from the main process only."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _write_stderr(f"warning: {record.getMessage()}", "yellow")
        else:
            _write_stderr(record.getMessage())


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Show the package's log messages, from INFO, on stderr within the block (also a decorator).

    Does nothing where the caller has configured logging: the logger `glassformer` has a handler or a level, or the root
    logger's level was changed.
    """
    logger = logging.getLogger("glassformer")
    if logger.handlers or logger.level or logging.getLogger().level != logging.WARNING:
        yield
        return
    handler, propagate = StderrHandler(), logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = propagate


def write_error(message: str, hint: str = "") -> None:
    """Write an error to stderr, and on a second line what to try next."""
    _write_stderr(f"error: {message}", "bold red")
    if hint:
        _write_stderr(f"hint: {hint}", "cyan")


def _write_stderr(text: str, style: str | None = None) -> None:
    # sys.stderr is None in a Windows program without a console.
    if sys.stderr is None or not is_main_process():
        return
    if is_terminal(sys.stderr):
        stderr_console().print(text, style=style, soft_wrap=True)
    else:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def write(text: str) -> None:
    """Write one line to stdout and flush it, so that a pipe gets it at once."""
    if is_main_process():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one JSON object to stdout on one line; NaN and infinity become null."""
    write(json.dumps(finite(value), ensure_ascii=False, allow_nan=False))


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout: drawn by rich on a terminal, aligned plain text elsewhere."""
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
    """Return a table as text: columns separated by two spaces, under a header and a rule."""
    cells = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    lines = ["  ".join(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _width(text: str) -> int:
    """Return the columns a text takes: Chinese and Japanese characters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def is_terminal(stream: Any) -> bool:
    """Return whether this stream is a terminal that can draw colours and progress bars."""
    if stream is None or getattr(stream, "closed", False) or os.environ.get("TERM") == "dumb" or not is_main_process():
        return False
    return stream.isatty()


def stderr_console() -> Console:
    """Return the rich console of stderr, for progress bars; check `is_terminal(sys.stderr)` first."""
    return _console(sys.stderr)


@functools.lru_cache(maxsize=2)
def _console(stream: Any) -> Console:
    """Return one console per stream, so that messages appear above a running progress bar instead of through it."""
    from rich.console import Console

    # rich itself omits colours under NO_COLOR. Text is never read as markup: it may hold "[PAD]".
    return Console(file=stream, markup=False, highlight=False, emoji=False)

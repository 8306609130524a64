"""Write to the terminal: log messages and errors to stderr, results to stdout.

Colours appear only on a terminal, and never under `NO_COLOR` or `TERM=dumb`. Libraries below the commands log through
`logging.getLogger(__name__)` and do not use this module's writers, only `announced`, which logs.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from glassformer.utils.atomic_io import json_line
from glassformer.utils.formatting import duration

logger = logging.getLogger(__name__)
Item = TypeVar("Item")
PROGRESS_SECONDS = 10.0
"""Seconds between two lines on how far an evaluation is."""
RED, YELLOW, CYAN = "1;31", "33", "36"
"""Colours of a terminal, as its escape sequences name them."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, and those that turn the direction of text; not tabs and line ends."""
_speaks = False


def ignore_rank() -> None:
    """Let this process write from now on: rank 0 may be the process that was lost."""
    global _speaks
    _speaks = True


def is_main_process() -> bool:
    """Return whether this process writes to the terminal: of the processes of `torchrun`, only rank 0 does."""
    return _speaks or int(os.environ.get("RANK", "0")) == 0 or int(os.environ.get("WORLD_SIZE", "1")) == 1


class StderrHandler(logging.Handler):
    """Logging handler that writes to stderr, from the main process only."""

    def emit(self, record: logging.LogRecord) -> None:
        warns = record.levelno >= logging.WARNING
        _write_stderr(("warning: " if warns else "") + record.getMessage(), YELLOW if warns else "")


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
    _write_stderr(f"error: {message}", RED)
    if hint:
        _write_stderr(f"hint: {hint}", CYAN)


def _write_stderr(text: str, colour: str = "") -> None:
    """Write to stderr; that it is closed, full, a terminal that is gone or a pipe without a reader stops no work."""
    text = printable(text)
    # sys.stderr is None in a Windows program without a console, and where it was closed.
    if sys.stderr is None or not is_main_process():
        return
    if colour and is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{colour}m{text}\x1b[0m"
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # ValueError: a closed file
        discard(sys.stderr)


class StdoutLost(BrokenPipeError):
    """Nobody reads stdout: it is closed, or the reader of its pipe has gone."""


def discard(stream: Any) -> None:
    """Send what is written to a stream nowhere, also what waits in it: its flush at exit would fail again."""
    with suppress(OSError, ValueError, AttributeError):  # not a file of its own: a test's; or already closed
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def write(text: str) -> None:
    """Write one line to stdout and flush it, so that a pipe gets it at once.

    Raises:
        StdoutLost: nobody reads it; OSError: the disk is full.
    """
    if not is_main_process():
        return
    if sys.stdout is None or sys.stdout.closed:
        raise StdoutLost("stdout is closed")
    try:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if error.errno in (errno.EPIPE, errno.EBADF):
            raise StdoutLost("the reader of stdout has gone") from error
        raise


def printable(text: str) -> str:
    """Return a text without the characters that control a terminal, or turn what is read; tabs and line ends stay."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_json(value: Any) -> None:
    """Write one JSON object to stdout on one line; NaN and infinity become null."""
    write(json_line(value))


def lines_of(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a result as text: a line for each value, a table for rows or for names with values; nothing for none."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = [{name: key, "": each} for key, each in value.items()]
        several = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if several and isinstance(several[0], Mapping):
            yield plain_table([*several[0]], [[*map(_cell, row.values())] for row in several])
        else:
            yield from (f"{name.replace('_', ' '):9} {_cell(each)}" for each in several)


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(map(_cell, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else f"{value:,}" if type(value) is int else str(value)


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
    """Return whether this stream is a terminal that can draw colours."""
    if stream is None or getattr(stream, "closed", False) or os.environ.get("TERM") == "dumb" or not is_main_process():
        return False
    return stream.isatty()


def announced(batches: Iterable[Item], n_batches: int, done: str, unit: str = "batches") -> Iterator[Item]:
    """Yield the batches of a long pass; each `PROGRESS_SECONDS` log how many are done ("scored") and what is left.

    The time before the first, in which a library may start, says nothing of those that are left.
    """
    started = shown = 0.0
    for n_done, batch in enumerate(batches):
        now = time.monotonic()
        if not n_done:
            started = shown = now
        elif now - shown >= PROGRESS_SECONDS:
            shown, left = now, (now - started) / n_done * (n_batches - n_done)
            logger.info(f"{done} {n_done:,} of {n_batches:,} {unit}  left {duration(left)}")
        yield batch

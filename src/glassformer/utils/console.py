"""Write to the terminal: log messages and errors to stderr, results to stdout.

Colours appear only on a terminal, and never under `NO_COLOR` or `TERM=dumb`. Libraries below the commands log through
`logging.getLogger(__name__)` and do not use this module's writers, only `announced`, which logs.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
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
    """Logging handler that writes to stderr, from the main process only."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _write_stderr(f"warning: {record.getMessage()}", YELLOW)
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
    _write_stderr(f"error: {message}", RED)
    if hint:
        _write_stderr(f"hint: {hint}", CYAN)


def _write_stderr(text: str, colour: str = "") -> None:
    """Write to stderr, as long as it can be written: what is said there never stops the work."""
    with stderr_may_be_lost():
        # sys.stderr is None in a Windows program without a console, and where it was closed.
        if sys.stderr is None or not is_main_process():
            return
        if colour and is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
            text = f"\x1b[{colour}m{text}\x1b[0m"
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


@contextmanager
def stderr_may_be_lost() -> Iterator[None]:
    """Ignore within the block that stderr is closed, full, a terminal that is gone, or a pipe without a reader."""
    try:
        yield
    except (OSError, ValueError):  # ValueError: a closed file
        discard(sys.stderr)


class StdoutLost(BrokenPipeError):
    """Nobody reads stdout: it is closed, or the reader of its pipe has gone."""


_goes_on = False
_lost: OSError | None = None


@contextmanager
def stdout_may_be_lost(goes_on: bool) -> Iterator[None]:
    """Let the command within the block finish its work without stdout, where `goes_on`; `lost_stdout` then returns why.

    Otherwise writing raises StdoutLost, or the OSError of a full disk.
    """
    global _goes_on, _lost
    before, _goes_on, _lost = (_goes_on, _lost), goes_on, None
    try:
        yield
    finally:
        _goes_on, _lost = before


def lost_stdout() -> OSError | None:
    """Return the error that took stdout from a command that continues without it; None while it can be written."""
    return _lost


def discard(stream: Any) -> None:
    """Send what is written to a stream nowhere, also what waits in it: its flush at exit would fail again."""
    with suppress(OSError, ValueError, AttributeError):  # not a file of its own: a test's; or already closed
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def write(text: str) -> None:
    """Write one line to stdout and flush it, so that a pipe gets it at once; errors as in `stdout_may_be_lost`."""
    global _lost
    if not is_main_process() or _lost is not None:
        return
    try:
        if sys.stdout is None or sys.stdout.closed:
            raise StdoutLost("stdout is closed")
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except OSError as error:
            discard(sys.stdout)
            if isinstance(error, BrokenPipeError) or error.errno == errno.EBADF:
                raise StdoutLost("the reader of stdout has gone") from error
            raise
    except OSError as error:
        if not _goes_on:
            raise
        _lost = error


def write_json(value: Any) -> None:
    """Write one JSON object to stdout on one line; NaN and infinity become null."""
    write(json_line(value))


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout."""
    write(plain_table(columns, rows))


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

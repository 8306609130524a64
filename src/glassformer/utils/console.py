"""Write to the terminal: log messages and errors to stderr, results to stdout.

Colours appear only on a terminal, and never under `NO_COLOR` or `TERM=dumb`; rich is imported only then. Libraries
below the commands log through `logging.getLogger(__name__)` and do not use this module's writers, only `announced`,
which logs.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from glassformer.utils.atomic_io import json_line
from glassformer.utils.formatting import duration

if TYPE_CHECKING:
    from rich.console import Console


logger = logging.getLogger(__name__)
Item = TypeVar("Item")
PROGRESS_SECONDS = 10.0
"""Seconds between two lines on how far an evaluation is."""

_is_main: bool | None = None
_showing, _n_showing = threading.Lock(), 0
"""Guards the handler of `log_to_stderr`; and the number of its open blocks, in all threads."""
_handler: tuple[logging.Handler, bool] | None = None
"""The handler, and whether the logger propagated before."""
_silent: ContextVar[bool] = ContextVar("_silent", default=False)


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
        if _silent.get():
            return
        if record.levelno >= logging.WARNING:
            _write_stderr(f"warning: {record.getMessage()}", "yellow")
        else:
            _write_stderr(record.getMessage())


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Show the package's log messages, from INFO, on stderr within the block (also a decorator).

    Does nothing where the caller has configured logging: the logger `glassformer` has a handler or a level, or the root
    logger's level was changed. Blocks of several threads share the handler.
    """
    global _n_showing, _handler
    logger = logging.getLogger("glassformer")
    with _showing:
        configured = logger.handlers or logger.level or logging.getLogger().level != logging.WARNING
        shows = _n_showing > 0 or not configured
        if shows and not _n_showing:
            _handler = StderrHandler(), logger.propagate
            logger.addHandler(_handler[0])
            logger.setLevel(logging.INFO)
            logger.propagate = False
        _n_showing += shows
    try:
        yield
    finally:
        with _showing:
            _n_showing -= shows
            if shows and not _n_showing and _handler is not None:
                logger.removeHandler(_handler[0])
                logger.setLevel(logging.NOTSET)
                logger.propagate = _handler[1]


@contextmanager
def log_silently() -> Iterator[None]:
    """Write none of this thread's log messages to stderr within the block; handlers of the caller's own get them."""
    token = _silent.set(True)
    try:
        with log_to_stderr():
            yield
    finally:
        _silent.reset(token)


def write_error(message: str, hint: str = "") -> None:
    """Write an error to stderr, and on a second line what to try next."""
    _write_stderr(f"error: {message}", "bold red")
    if hint:
        _write_stderr(f"hint: {hint}", "cyan")


def _write_stderr(text: str, style: str | None = None) -> None:
    """Write to stderr, as long as it can be written: what is said there never stops the work."""
    with stderr_may_be_lost():
        # sys.stderr is None in a Windows program without a console, and where it was closed.
        if sys.stderr is None or not is_main_process():
            return
        if is_terminal(sys.stderr):
            stderr_console().print(text, style=style, soft_wrap=True)
        else:
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


def _write_stdout(print_on: Callable[[Any], None]) -> None:
    """Call a function that writes to stdout, with its errors as `stdout_may_be_lost` says."""
    global _lost
    if not is_main_process() or _lost is not None:
        return
    try:
        if sys.stdout is None or sys.stdout.closed:
            raise StdoutLost("stdout is closed")
        try:
            print_on(sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            discard(sys.stdout)
            if error.errno in (errno.EPIPE, errno.EBADF) or isinstance(error, BrokenPipeError):
                raise StdoutLost("the reader of stdout has gone") from error
            raise
    except OSError as error:
        if not _goes_on:
            raise
        _lost = error


def discard(stream: Any) -> None:
    """Send what is written to a stream nowhere, also what waits in it: its flush at exit would fail again."""
    with suppress(OSError, ValueError, AttributeError):  # not a file of its own: a test's; or already closed
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def write(text: str) -> None:
    """Write one line to stdout and flush it, so that a pipe gets it at once."""
    _write_stdout(lambda stdout: stdout.write(text + "\n"))


def write_json(value: Any) -> None:
    """Write one JSON object to stdout on one line; NaN and infinity become null."""
    write(json_line(value))


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
    _write_stdout(lambda stdout: _console(stdout).print(table))


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


def stderr_console() -> Console:
    """Return the rich console of stderr; check `is_terminal(sys.stderr)` first."""
    return _console(sys.stderr)


@functools.lru_cache(maxsize=2)
def _console(stream: Any) -> Console:
    """Return one console per stream."""
    from rich.console import Console

    # rich itself omits colours under NO_COLOR. Text is never read as markup: it may hold "[PAD]".
    return Console(file=stream, markup=False, highlight=False, emoji=False)


def announced(
    batches: Iterable[Item],
    n_batches: int,
    done: str,
    clock: Callable[[], float] = time.monotonic,
    unit: str = "batches",
    first: int = 0,
) -> Iterator[Item]:
    """Yield the batches of a long pass; each `PROGRESS_SECONDS` log how many are done ("scored") and what is left.

    `first` of the `n_batches` were done before. The time before the first of the others, in which a library may start,
    says nothing of those that are left.
    """
    started = shown = 0.0
    for n_done, batch in enumerate(batches):
        now = clock()
        if not n_done:
            started = shown = now
        elif now - shown >= PROGRESS_SECONDS:
            shown, left = now, (now - started) / n_done * (n_batches - first - n_done)
            logger.info(f"{done} {first + n_done:,} of {n_batches:,} {unit}  left {duration(left)}")
        yield batch

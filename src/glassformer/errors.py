"""Every error Glassformer raises on purpose, and the exit code each one ends a command with.

By class, exit code and cause::

    GlassformerError                exit 1   a bug, or something not foreseen
    ├── UsageError                  exit 2   a flag, a field of a recipe, an argument
    ├── DataError                   exit 3   a file of data: missing, malformed, misaligned
    ├── CheckpointError             exit 4   a run, checkpoint, model or tokenizer that does not load
    ├── DivergedError               exit 5   NaN or infinity in the loss or the gradient
    ├── ResourceError               exit 6   memory, disk or another process of the run
    └── Interrupted                 exit 129 (SIGHUP), 130 (Ctrl-C) or 143 (SIGTERM): saved, resumable

A message says what was expected, what came, and where; `hint` says what to try next. Both name an option as its caller
writes it: `--batch-size` on the command line, `batch_size` in Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_of_command = False
"""Whether a command runs, whose caller writes options as flags."""


@contextmanager
def options_as_flags() -> Iterator[None]:
    """Within the block, leave options in errors as the flags of the command line."""
    global _of_command
    before, _of_command = _of_command, True
    try:
        yield
    finally:
        _of_command = before


@contextmanager
def options_as_arguments() -> Iterator[None]:
    """Write options as arguments of Python in errors that leave the block, also a decorator, unless a command runs."""
    try:
        yield
    except GlassformerError as error:
        if not _of_command:
            error.message, error.hint = _as_arguments(error.message), _as_arguments(error.hint)
            error.args = (error.message,)
        raise


def _as_arguments(text: str) -> str:
    """Return a text in which flags are arguments, `max_len=3` for `--max-len 3`; commands are left as they are."""
    text, command, rest = text.partition("glassformer ")
    written = re.compile(r"(?<![\w'\"=-])--(?:[a-z]+\.)?([a-z][\w-]*)(?: (?=\d))?")
    text = written.sub(lambda flag: flag[1].replace("-", "_") + ("=" if flag[0].endswith(" ") else ""), text)
    return text + command + rest


class GlassformerError(Exception):
    """Base of every deliberate error.

    Args:
        message: one sentence: what was expected, what came, where (`file:line` for data).
        hint: what to do about it, printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GlassformerError):
    """A flag, a recipe field or an argument that cannot be used as it stands."""

    exit_code = 2


class DataError(GlassformerError):
    """Data that is missing, malformed or misaligned; the message names file and line."""

    exit_code = 3


class CheckpointError(GlassformerError):
    """A run folder, checkpoint, model or tokenizer that is missing, damaged or mismatched."""

    exit_code = 4


class ChangedDataError(DataError):
    """A file of a run's data is not as it was when the run was trained."""


class DivergedError(GlassformerError):
    """The loss or the gradient stopped being a number; raised before the step is applied."""

    exit_code = 5


class ResourceError(GlassformerError):
    """Memory or disk ran out, or another process of the run is gone."""

    exit_code = 6


class Interrupted(GlassformerError):
    """SIGHUP (129), Ctrl-C (130) or SIGTERM (143) arrived; what the message says is saved, and can be resumed."""

    exit_code = 130

    def __init__(self, message: str, hint: str = "", exit_code: int = 130) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def error_of(exit_code: int, message: str, hint: str) -> GlassformerError:
    """Return the error that ends a command with this exit code, as another process raised it."""
    if exit_code > 128:  # and the number of a signal
        return Interrupted(message, hint, exit_code)
    kinds = (UsageError, DataError, CheckpointError, DivergedError, ResourceError)
    return {kind.exit_code: kind for kind in kinds}.get(exit_code, GlassformerError)(message, hint)

"""The entry of the command: help, dispatch to one lazily imported file per command, and every error's last stop.

Nothing heavy is imported here, so that `glassformer --help` answers at once. What a command does is in
its own file; what its flags mean is in `config/` and beside them.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from glassformer import __version__
from glassformer.errors import GlassformerError, Interrupted, ResourceError, UsageError
from glassformer.utils import console

logger = logging.getLogger(__name__)

COMMANDS = {
    "demo": "train on dates written in many languages, evaluate, show a few predictions",
    "train": "train a recipe, or go on with a run: --resume RUN",
    "evaluate": "score a run on its test split, or on files of yours",
    "predict": "label, translate or continue text from the arguments or stdin",
    "import": "make a run of a pretrained model of another library, and compare the two",
    "export": "write a run in the form of another library, and compare what was written",
    "explain": "look inside a run: every step of its forward pass on a text, in the browser",
    "data": "check or audit files, or show what a recipe reads",
    "recipes": "list the recipes, or print one",
    "compare": "put runs side by side",
    "doctor": "look at this machine, or at what went wrong in a run",
}

WORK = (["demo"], ["train"], ["import"], ["export"], ["explain"], ["data", "check"], ["data", "audit"])
"""Commands that do more than print, or whose exit code has a meaning: they continue when nobody reads their output."""
PATH_ERRORS = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)

HELP = """\
Train a small Transformer on your own text, then look at every number inside it.

usage: glassformer COMMAND [arguments] [--flags]        glassformer COMMAND --help

{commands}

everywhere:
  --help      what a command takes
  --json      one JSON object a line on stdout, errors included
  --debug     the traceback of an error
  --version   the version

start with:
  glassformer demo
  glassformer train imdb --out runs/imdb
  glassformer predict runs/imdb "I loved every minute"
  glassformer explain runs/imdb "I loved every minute"

exit codes: 0 fine, 1 a bug, 2 usage, 3 data, 4 run or model, 5 diverged, 6 memory, disk or a lost process,
            129, 130 and 143 interrupted (a training run is saved; --resume continues it)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; nothing but that code and the two streams comes out.

    Args:
        argv: the arguments after the command's name; those of the process when absent.
    """
    _open_closed_streams()
    if argv is None:
        _restart_in_utf8()
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug, as_json = "--debug" in flags, "--json" in flags
    if debug:
        arguments.remove("--debug")
    _use_utf8()
    works = _works(arguments)
    try:
        with console.stdout_may_be_lost(goes_on=works), console.log_to_stderr():
            code = _dispatch(arguments)
            if code == 0 and (lost := console.lost_stdout()) is not None:
                if not isinstance(lost, console.StdoutLost):
                    raise lost
                logger.warning(f"{lost}: what was done is done, and was not printed")
            return code
    except SystemExit as stop:  # after a command's help was printed
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        if isinstance(error, BrokenPipeError) and not works:  # the reader, `head` perhaps, has seen enough
            console.discard(sys.stdout)
            if isinstance(error, console.StdoutLost) and error.__cause__ is None:
                with console.log_to_stderr():
                    logger.warning(f"{error}: the answer was not printed")
            return 0
        _write_error(error, as_json, debug)
        return as_known(error).exit_code


def _works(arguments: Sequence[str]) -> bool:
    """Return whether a command is one of WORK, and so is not done when nobody reads what it prints."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    asks_for_help = bool({"--help", "-h"} & set(arguments))
    return not asks_for_help and (words[:1] in WORK or words[:2] in WORK)


def _write_error(error: BaseException, as_json: bool, debug: bool) -> None:
    """Write an error to stderr, and with --json to stdout too, as far as they can be written."""
    if debug:
        with console.stderr_may_be_lost():
            import traceback

            traceback.print_exc()
    known = as_known(error)
    if as_json:
        facts = {"kind": type(known).__name__, "message": known.message, "hint": known.hint}
        with suppress(OSError):
            console.write_json({"error": facts | {"exit_code": known.exit_code}})
    console.write_error(known.message, known.hint)


def _dispatch(arguments: list[str]) -> int:
    """Hand the rest of the arguments to a command."""
    for number, argument in enumerate(arguments, start=1):
        if argument.encode("utf-8", "surrogateescape") != argument.encode("utf-8", "replace"):
            shown = argument.encode("utf-8", "backslashreplace").decode()
            message = f"argument {number} is not UTF-8: {shown}"
            raise UsageError(message, "rename the file, or convert the text, for instance with iconv and convmv")
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h", "help"):
        listed = "\n".join(f"  {name:10}{text}" for name, text in COMMANDS.items())
        console.write(HELP.format(commands=listed))
        return 0
    if command == "--version":
        console.write(f"glassformer {__version__}")
        return 0
    if command not in COMMANDS:
        _refuse(command)
    if command != "train" and (n := os.environ.get("WORLD_SIZE", "1")) != "1":
        message = f"{command} is the work of one process, and {n} were started"
        raise UsageError(message, "start it without torchrun; train alone runs in several processes")
    return import_module(f"glassformer.cli.{command}").run(arguments[1:])


def _refuse(word: str) -> NoReturn:
    """Raise a UsageError that names the command or the flag that was probably meant."""
    from glassformer.config.recipes import nearest, recipe_names

    if word == "--json":
        raise UsageError("--json stands before the command", "give it after: glassformer recipes --json")
    hint = nearest(word, [*COMMANDS, "--help", "--version"]) + f"there are: {', '.join(COMMANDS)}"
    if word in recipe_names():
        hint = f"{word} is a recipe: glassformer train {word}"
    message = f"glassformer has no flag {word}" if word.startswith("-") else f"no command is called {word!r}"
    raise UsageError(message, hint)


def as_known(error: BaseException) -> GlassformerError:
    """Return any exception as a GlassformerError: errors of the operating system have exit codes, the rest are bugs."""
    text = " ".join(str(error).split())
    if isinstance(error, GlassformerError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted")
    # Torch's CPU allocator says so in a RuntimeError; on a GPU its error is known by name, for torch is not imported.
    refused = isinstance(error, RuntimeError) and re.search("not enough memory|can't allocate memory", text)
    if isinstance(error, MemoryError) or refused or type(error).__name__ == "OutOfMemoryError":
        hint = "a smaller --max-tokens, --batch-size or model needs less"
        return ResourceError(f"memory ran out: {text[:200] or 'the machine has no more'}", hint)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return ResourceError(f"{place}the disk is full", "free some space, or choose another --out")
        if isinstance(error, BrokenPipeError):
            return ResourceError(f"{place}a pipe has lost the process at its other end", "start the command again")
        if isinstance(error, PATH_ERRORS):
            return UsageError(f"{place}{error.strerror or text}", "check the path and its permissions")
    hint = "this is a bug: please report it with the output of --debug"
    return GlassformerError(f"{type(error).__name__}: {text[:500]}", hint)


def _open_closed_streams() -> None:
    """Open the null device in place of standard streams that are closed.

    The next file to be opened would get the number of a closed one, and what a library prints would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def _restart_in_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale has another encoding: names of files and texts may be any."""
    if os.name == "posix" and sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONUTF8": "1"})


def _use_utf8() -> None:
    """Set UTF-8 and plain newlines for the standard streams on every platform and in every locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            errors = "backslashreplace" if stream is sys.stderr else "strict"
            with suppress(OSError):  # a stream that is lost already: who writes to it will notice
                stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")

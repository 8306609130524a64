"""The entry of the command: help, dispatch to the lazily imported file of a command, and every error's last stop.

Nothing heavy is imported here, so that `glassformer --help` answers at once. What a command does is in its file: the
dataclass of its flags, whose method `run` yields what it found, which is written here as text or as JSON.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from glassformer import __version__, errors
from glassformer.errors import GlassformerError, Interrupted, ResourceError, UsageError
from glassformer.utils import console

COMMANDS = {
    "demo": ("train", "train on dates written in many languages, evaluate, show a few predictions"),
    "train": ("train", "train a recipe, or resume a run: --resume RUN"),
    "evaluate": ("use", "score a run on its test split, or on files of yours"),
    "compare": ("use", "put two runs side by side"),
    "predict": ("use", "label, translate or continue text from the arguments or stdin"),
    "predict-table": ("use", "answer each row of a table, in columns behind its own"),
    "explain": ("explain", "look inside a run: every step of its forward pass on a text, in the browser"),
    "edit": ("explain", "change the forward pass on a text, and see what the model answers instead"),
    "findings": ("explain", "measure the effects of edits again that a file of findings holds"),
    "figure": ("explain", "draw attention or the weight of each word"),
    "learn": ("explain", "take steps of the optimizer on one answer, and see what they change"),
    "watch": ("explain", "follow a training in the browser"),
    "import": ("use", "make a run of a pretrained model of another library, and compare the two"),
    "export": ("use", "write a run in the form of another library, and compare what was written"),
    "data": ("check", "check or audit files, or show what a recipe reads"),
    "recipes": ("train", "list the recipes, or print one"),
    "doctor": ("check", "look at this machine, or at what went wrong in a run"),
}
"""Each command: the module that has its class, and what it does."""
PATH_ERRORS = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)

HELP = """\
Train a small Transformer on your own text, then look at every number inside it.

usage: glassformer COMMAND [arguments] [--flags]        glassformer COMMAND --help

{commands}

everywhere: --help, --json (one JSON object a line on stdout, errors included), --debug (the traceback of an error)
start with: glassformer demo
exit codes: 0 fine, 1 a bug, 2 usage, 3 data, 4 run or model, 5 diverged, 6 memory, disk or a lost process,
            129, 130 and 143 interrupted (a training run is saved; --resume continues it);
            `findings` ends with 1 where one differs"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; nothing but that code and the two streams comes out.

    Args:
        argv: the arguments after the command's name; those of the process when absent.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug, as_json = "--debug" in own, "--json" in own
    if debug:
        arguments.remove("--debug")
    _prepare_streams()
    try:
        with errors.options_as_flags(), console.log_to_stderr():
            _dispatch(arguments)
        return 0
    except SystemExit as stop:  # after help was printed, and of a command that has an exit code of its own
        return stop.code if isinstance(stop.code, int) else 1
    except console.StdoutLost:  # the reader, `head` perhaps, has seen enough
        return 0
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        known = as_known(error)
        if debug:
            import traceback

            with suppress(OSError, ValueError):  # ValueError: a closed stream
                traceback.print_exc()
        if as_json:
            facts = {"kind": type(known).__name__, "message": known.message, "hint": known.hint}
            with suppress(OSError):
                console.write_json({"error": facts | {"exit_code": known.exit_code}})
        console.write_error(known.message, known.hint)
        return known.exit_code


def _dispatch(arguments: list[str]) -> None:
    """Hand the rest of the arguments to a command, and write what it yields."""
    if wrong := [argument for argument in arguments if re.search("[\ud800-\udfff]", argument)]:
        message = f"an argument is not UTF-8: {wrong[0].encode('utf-8', 'backslashreplace').decode()}"
        raise UsageError(message, "rename the file, or convert the text, for instance with iconv and convmv")
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h", "help"):
        console.write(HELP.format(commands="\n".join(f"  {name:15}{text}" for name, (_, text) in COMMANDS.items())))
        return
    if command == "--version":
        console.write(f"glassformer {__version__}")
        return
    if command not in COMMANDS:
        _refuse(command)
    from glassformer.api import check_alone
    from glassformer.cli.flags import read

    if command != "train":
        check_alone(command)
    given = read(class_of(command), arguments[1:])
    for facts, lines in given.run():
        if given.json:
            console.write_json(facts)
        else:
            for line in lines:
                console.write(line)


def class_of(command: str) -> Any:
    """Return the class of a command."""
    module = import_module(f"glassformer.cli.{COMMANDS[command][0]}")
    return getattr(module, command.title().replace("-", ""))


def _refuse(word: str) -> NoReturn:
    """Raise a UsageError that names the command or the flag that was probably meant."""
    from glassformer.config.recipes import nearest, recipe_names

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
        hint = "train with a smaller --max-tokens, --batch-size or model; otherwise take shorter texts, or --device cpu"
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


def _prepare_streams() -> None:
    """Set UTF-8 and plain newlines for the standard streams on every platform and in every locale.

    Closed ones become the null device: a file of the run would get the free number, and messages of libraries with it.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            errors = "backslashreplace" if stream is sys.stderr else "strict"
            with suppress(OSError):  # a stream that is lost already: who writes to it will notice
                stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")

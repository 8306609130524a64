from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from glassformer import errors
from glassformer.cli import main as module

ERRORS = "GlassformerError UsageError DataError CheckpointError DivergedError ResourceError Interrupted".split()
CASES = [
    *((getattr(errors, name)("x"), code) for name, code in zip(ERRORS, [1, 2, 3, 4, 5, 6, 130], strict=True)),
    (errors.Interrupted("x", exit_code=143), 143),
    (KeyboardInterrupt(), 130),
    (MemoryError(), 6),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"), 6),
    (OSError(errno.ENOSPC, "No space left on device", "a/b"), 6),
    (OSError(errno.EFBIG, "File too large"), 6),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.csv"), 2),
    (PermissionError(errno.EACCES, "Permission denied", "a.csv"), 2),
    (ValueError("surprise"), 1),
    (RuntimeError("surprise"), 1),
    (SystemExit(0), 0),
    (BrokenPipeError(), 6),  # stdout's own is another
]


@pytest.mark.parametrize(("error", "code"), CASES, ids=lambda value: repr(value)[:40])
def test_every_error_ends_in_its_exit_code(
    error: BaseException, code: int, cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_dispatch", mock.Mock(side_effect=error))
    message = cli("train")
    assert message.code == code and message.out == "" and "Traceback" not in message.err
    assert code in (0, 130, 143) or message.err.startswith("error: ")
    assert ("bug" in message.err) == (code == 1 and not isinstance(error, errors.GlassformerError))


def test_debug_shows_the_traceback_and_json_errors_are_on_stdout_too(
    cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = cli("train", "imbd", "--json")
    error = message.json["error"]
    assert message.code == error["exit_code"] == 2 and error["kind"] == "UsageError" and "imdb" in error["hint"]

    def fail(arguments: list[str]) -> int:
        assert arguments == ["train"]  # the flag is not passed on
        raise errors.DataError("a.csv:3: no label", "mend it")

    monkeypatch.setattr(module, "_dispatch", fail)
    message = cli("train", "--debug")
    assert message.code == 3 and "Traceback" in message.err
    assert message.err.endswith("error: a.csv:3: no label\nhint: mend it\n")


def test_help_names_every_command_and_each_has_help(cli: Callable) -> None:
    for words in (["--help"], ["-h"], ["help"], []):
        message = cli(*words).ok
        assert "verb" not in message.out.lower()
        assert all(f"\n  {verb} " in message.out for verb in module.COMMANDS)
    assert cli("--version").out.startswith("glassformer 0.")
    for verb in module.COMMANDS:
        message = cli(verb, "--help").ok
        assert f"usage: glassformer {verb}" in message.out
        assert "--json" in message.out and message.err == ""


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        ("trian", "no command is called 'trian'\nhint: did you mean 'train'?"),
        ("--verison", "glassformer has no flag --verison\nhint: did you mean '--version'?"),
        ("-hlep", "did you mean '--help'?"),
        ("imdb", "glassformer train imdb"),
        ("--lr", "there are: demo, train"),
    ],
)
def test_unknown_commands_get_a_suggestion(verb: str, hint: str, cli: Callable) -> None:
    message = cli(verb)
    assert message.code == 2
    assert hint in message.err


def test_the_streams_are_utf8_whatever_the_locale() -> None:
    script = "from glassformer.cli.main import main; main(['recipes', 'n\\u00f6'])"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, env=env)
    assert "'n\u00f6'" in result.stderr.decode("utf-8")

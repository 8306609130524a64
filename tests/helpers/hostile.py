"""Folders as a forger would change them: every file by a list of damages, every JSON key by values of wrong types."""

import io
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from tests.helpers.tiny_runs import Outcome

from glassformer.cli.main import main
from glassformer.runs.sealed_folder import MANIFEST, write_sealed_folder

SECONDS = 300
"""Longest time of a command, hundreds of times what it takes: a machine that is busy must not fail a test."""
BYTES = (4 if torch.cuda.is_available() else 2) << 30
"""Most memory that all commands may take together."""

DEEP = b"[" * 200_000
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b'{"a": "\xff\xfe"}\n',
    "UTF-16": '{"a": 1}\n'.encode("utf-16"),
    "deep arrays": DEEP + b"\n",
    "deep objects": b'{"a":' * 100_000 + b"\n",
    "deep TOML": b"a = " + DEEP + b"\n",
    "long key": b".".join([b"a"] * 100_000) + b" = 1\n",
    "10,000 digits": b'{"a": ' + b"1" * 10_000 + b"}\n",
    "10,000 digits of TOML": b"a = " + b"1" * 10_000 + b"\n",
    "half a pair": b'{"a": "\\ud800"}\n',
    "zeros": bytes(4096),
    "long line": b"x" * (1 << 20),
} | {text: text.encode() for text in ("null\n", "[1]\n", '"x"\n', "{}\n")}
NUMBERS = [True, -1, 0, 0.5, 1e308, float("nan"), float("inf"), 10**15, 10**35]
OTHERS = ["x", "x" * 100_000, "a\0b", "../../x", [], [{}], [[1], ["x"]], {}, {"a": {"b": []}}]
VALUES: dict[str, Any] = {repr(value)[:40]: value for value in [None, *NUMBERS, *OTHERS]}
Change = Callable[[Path], None]


@dataclass(frozen=True)
class Attack:
    """One change of one file of a folder."""

    file: str
    name: str
    change: Change

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def file_attacks(file: str) -> Iterator[Attack]:
    """Every damage of a whole file; those that an in-place seal survives are sealed again by `forge`."""
    for name, data in CONTENTS.items():
        yield Attack(file, name, lambda path, data=data: _write(path, data))
    yield Attack(file, "truncated", lambda path: _write(path, path.read_bytes()[: path.stat().st_size // 2]))
    yield Attack(file, "removed", remove)
    yield Attack(file, "a folder", lambda path: (remove(path), path.mkdir()))
    yield Attack(file, "a pipe", lambda path: (remove(path), os.mkfifo(path)))
    yield Attack(file, "a dangling link", lambda path: (remove(path), path.symlink_to(path.parent / "nowhere")))
    yield Attack(file, "a link to itself", lambda path: (remove(path), path.symlink_to(path)))
    yield Attack(file, "a link to /dev/zero", lambda path: (remove(path), path.symlink_to("/dev/zero")))
    yield Attack(file, "sparse, 20 GB", lambda path: os.truncate(path, 20 << 30))


def key_attacks(file: str, value: Any, depth: int = 3) -> Iterator[Attack]:
    """Every key of a JSON file, down to a depth, removed or given each of `VALUES`."""
    for keys in _paths(value, depth):
        where = ".".join(map(str, keys))
        yield Attack(file, f"without {where}", lambda path, keys=keys: _edit(path, keys, None, remove=True))
        for name, new in VALUES.items():
            yield Attack(file, f"{where} = {name}", lambda path, keys=keys, new=new: _edit(path, keys, new))


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change the value of a JSON file in place."""
    value = json.loads(path.read_text("utf-8"))
    change(value)
    path.write_text(json.dumps(value), "utf-8")


def reseal(folder: Path) -> None:
    """Write the manifest of a sealed folder again, as a forger would."""
    kind = json.loads((folder / MANIFEST).read_bytes())["kind"]
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != MANIFEST and p.is_file()}
    card = files.pop("README.md", b"")
    write_sealed_folder(folder, kind, {name: [data] for name, data in files.items()})
    (folder / "README.md").write_bytes(card)


def forge(source: Path, target: Path, attack: Attack, seal: bool = False) -> Path:
    """Copy a folder, change a file, and seal it again where that is asked for and possible."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, symlinks=True)
    path = target / attack.file
    attack.change(path)
    sealed = path.name != MANIFEST and (path.parent / MANIFEST).is_file()
    if seal and sealed and path.is_file() and path.stat().st_size < 1 << 28:
        reseal(path.parent)
    return target


class Timeout(BaseException):
    """A command took too long."""


def query(*arguments: object) -> Outcome:
    """Run the command in this process, for `SECONDS` at most, with nothing on stdin.

    Its exit code is 99 for what left `main` as an exception, 98 for a timeout.
    """
    out, err = io.StringIO(), io.StringIO()

    def stop(*_: object) -> None:
        raise Timeout

    before, stdin_before = signal.signal(signal.SIGALRM, stop), sys.stdin
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main([str(a) for a in arguments])
    except BaseException as error:
        code = 98 if isinstance(error, Timeout) else 99
        err.write(f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.stdin = stdin_before
    return Outcome(code, out.getvalue(), err.getvalue())


def peak_bytes() -> int:
    """Return the most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _paths(value: Any, depth: int) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield (key,)
        if depth > 1:
            yield from ((key, *rest) for rest in _paths(item, depth - 1))


def _edit(path: Path, keys: tuple[str | int, ...], new: Any, remove: bool = False) -> None:
    """Change one key of a JSON file, or of each line of JSON Lines that has it."""
    lines = path.read_text("utf-8").split("\n") if path.suffix == ".jsonl" else [path.read_text("utf-8")]
    changed = []
    for line in lines:
        if line.strip():
            value = json.loads(line)
            *path_to, last = keys
            with suppress(LookupError, TypeError) if changed else nullcontext():  # of JSON Lines the first has it
                place = reduce(getitem, path_to, value)
                if remove:
                    del place[last]
                else:
                    place[last] = new
            line = json.dumps(value)
        changed.append(line)
    _write(path, "\n".join(changed).encode())


def _write(path: Path, data: bytes) -> None:
    remove(path)
    path.write_bytes(data)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)

"""Read files of folders that somebody else may have made: regular ones alone, of bounded size; typed JSON.

How to use it: `read_json(folder / "config.json", kind=Kind)`, with a limit of `LIMITS` or another. Whatever is wrong
with a file raises one error, a CheckpointError with the path: it is missing, a folder, a pipe or a device, too large,
not UTF-8, not JSON or TOML, nested too deeply, or of another type than it should be.
A file that another library opens by its path (or that is mapped into memory) goes through `open_regular` before that.

A symbolic link is followed where it leads to a regular file within the limit: model caches consist of such links, and
what is read is checked like any other file. Nothing is written through a link inside a run: `RunFolder.refuse_links`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from glassformer.errors import CheckpointError

T = TypeVar("T")


def from_json(kind: type[T], value: Any, where: Path | str) -> T:
    """Return JSON, as data or as bytes in UTF-8, as a type; keys that a dataclass does not know are left out.

    An integer stands for a float; nothing else is converted.

    Raises:
        CheckpointError: it is no JSON or nested too deeply; or a field is missing, of another type or beyond its
            limits. `where` and the field are named.
    """
    try:
        return msgspec.json.decode(value, type=kind) if isinstance(value, bytes) else msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        what, _, place = str(problem).partition(" - at ")
        message = f"{where}{place and f', {place}'}: {what[0].lower()}{what[1:]}"
        raise CheckpointError(message, "restore it from a copy") from problem
    except (ValueError, RecursionError) as problem:  # ValueError: msgspec's and that of UTF-8
        raise CheckpointError(f"{where} is not the JSON it should be: {problem}", "restore it from a copy") from problem


def check_types(values: Mapping[str, Any], kinds: Mapping[str, Any], where: Path | str) -> None:
    """Raise the error of `from_json` if a value is not of the type that `kinds` has for its name."""
    for name in kinds.keys() & values.keys():
        from_json(kinds[name], values[name], f"{where}: {name}")


MiB = 1 << 20
LIMITS = {
    "settings": MiB // 4,  # config.toml, seeds.json
    "findings": MiB,
    "record": 16 * MiB,  # the JSON files of a run, of a model
    "log": 64 * MiB,  # metrics.jsonl
    "predictions": 128 * MiB,
    "text": 16 * MiB,  # model cards and reports
    "tokenizer": 64 * MiB,
    "weights": 1 << 36,  # before it is read whole, it is compared with what the configuration needs
}
"""Largest size in bytes of each kind of file. Parsed JSON takes up to thirty times its size."""
MAX_PARTS = 32
"""Most parts of a key of TOML: the time of the parser grows with their square."""
TOML_STRING = r'"(?:\\.|[^"\\])*"?|\'[^\']*\'?'
"""A string on a line of TOML, its end perhaps on another: what a dot is no part of a key in."""


@contextmanager
def open_regular(path: Path, max_bytes: int) -> Iterator[BufferedReader]:
    """Open a regular file of at most `max_bytes` for reading; nothing else is opened, so nothing can block.

    Raises:
        CheckpointError: there is no such file, or while it is read.
    """
    if "\0" in str(path):
        raise CheckpointError(f"{str(path)!r} is no name of a file")
    try:
        state = os.stat(path)  # before opening: opening a device may already do something
        if not stat.S_ISREG(state.st_mode):
            kind = "is a folder" if stat.S_ISDIR(state.st_mode) else "is a pipe, a socket or a device"
            raise CheckpointError(f"{path} should be a file, and {kind}")
        if state.st_size > max_bytes:
            raise CheckpointError(f"{path} should have at most {max_bytes:,} bytes, and has {state.st_size:,}")
        with open(path, "rb") as file:
            yield file
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read: {problem.strerror or problem}") from problem


def check_regular(path: Path, max_bytes: int) -> None:
    """Raise as `open_regular` for anything but a regular file of at most `max_bytes`."""
    with open_regular(path, max_bytes):
        pass


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file; raise as `open_regular`."""
    with open_regular(path, max_bytes) as file:
        return file.read()


def read_text(path: Path, max_bytes: int = LIMITS["text"]) -> str:
    """Return the text of a regular file in UTF-8; raise as `read_bytes`."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise CheckpointError(f"{path} is not UTF-8 at byte {problem.start}") from problem


def sha256_regular(path: Path) -> str:
    """Return the SHA-256 of a regular file in hexadecimal, in bounded memory; raise as `open_regular`."""
    with open_regular(path, LIMITS["weights"]) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, max_bytes: int = LIMITS["record"], kind: Any = Any) -> Any:
    """Return the value of a JSON file as a type; raise as `read_bytes` and `from_json`."""
    return from_json(kind, read_bytes(path, max_bytes), path)


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; raise as `read_json`."""
    return read_json(path, kind=dict[str, Any])


def read_toml(path: Path, max_bytes: int = LIMITS["settings"]) -> dict[str, Any]:
    """Return the tables of a TOML file; raise as `read_text`, also if it is no TOML or nested too deeply."""
    text = read_text(path, max_bytes)
    if any(re.sub(TOML_STRING, "", line).count(".") > MAX_PARTS for line in text.split("\n")):
        raise CheckpointError(f"{path} is not valid TOML for this: a key of more than {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # ValueError: also a number of thousands of digits
        raise CheckpointError(f"{path} is not valid TOML: {problem}") from problem

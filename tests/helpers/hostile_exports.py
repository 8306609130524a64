"""Exports of every kind, changed and sealed again as somebody would who means harm: the manifest holds no secret."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import WORDS, run_of

from glassformer.interop.export import export
from glassformer.run import Run
from glassformer.runs.sealed_folder import MANIFEST

BYTES = {"tokenizer": "byte-bpe", "vocab_size": 300, "max_len": 32}
LLAMA = {"norm": "rms", "activation": "swiglu", "positions": "rotary", "bias": False}
LLAMA |= {"d_model": 64, "n_heads": 2, "d_ff": 96}
KINDS = {
    "ctranslate2-translator": ("translate", {}, {}, "ctranslate2"),
    "ctranslate2-lm": ("lm", BYTES, LLAMA, "ctranslate2"),
    "hf-lm": ("lm", BYTES, LLAMA, "hf"),
    "hf-translator": ("translate", {}, {}, "hf"),
    "onnx-classifier": ("classify", WORDS, {}, "onnx"),
}
"""Task, settings of the tokenizer and of the model, and library, by name."""


def hostile_run(name: str, patch: pytest.MonkeyPatch) -> Run:
    """Return the run of one of the kinds."""
    task, text, model, _ = KINDS[name]
    return run_of(task, patch, text, **model)


def write_export(name: str, out: Path) -> Path:
    """Export a run of random weights without comparing it, which would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        run = hostile_run(name, patch)
        patch.setattr("glassformer.interop.export.check_export", lambda *_: "not checked: by this test")
        export(run, KINDS[name][3], out)  # pyright: ignore[reportArgumentType]
    return out


def copy_of(folder: Path, out: Path) -> Path:
    """Return a copy of an export to change."""
    return shutil.copytree(folder, out)


def reseal(folder: Path, sums: bool = True) -> None:
    """Write the manifest again for whatever the folder holds; without `sums` with sums of nothing."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.name != MANIFEST:
            is_file = path.is_file() and sums
            digest = hashlib.sha256(path.read_bytes() if is_file else b"").hexdigest()
            files[path.name] = {"bytes": path.stat().st_size if path.exists() else 0, "sha256": digest}
    body = {"kind": "glassformer export", "files": files}
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).write_text(json.dumps(body), "utf-8")


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the value of a JSON file in place."""
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")


DEEP = "[" * 100_000 + "]" * 100_000
VALUES: dict[str, str] = {
    "null": "null",
    "a truth value": "true",
    "minus five": "-5",
    "a huge number": "1" + "0" * 30,
    "a number of many digits": "9" * 10_000,
    "NaN": "NaN",
    "infinity": "Infinity",
    "a fraction": "0.5",
    "a string": '"__class__"',
    "a long string": '"' + "x" * 100_000 + '"',
    "a list": "[1, [2], {}]",
    "an object": '{"a": {"b": []}}',
    "deep": DEEP,
}
"""Values of JSON as they are written, by what they are."""


def changed_documents(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, content) of a JSON object: without each key, with each of `VALUES` there, with an unknown key."""
    document = json.loads(text)
    if not isinstance(document, dict):
        document = {"": document}
    for key in document:
        others = {name: value for name, value in document.items() if name != key}
        yield f"without {key}", json.dumps(others)
        start = json.dumps(others)[:-1] + (", " if others else "")
        for name, value in VALUES.items():
            yield f"{key}: {name}", f"{start}{json.dumps(key)}: {value}}}"
    yield "an unknown key", json.dumps(document | {"auto_map": {"AutoConfig": "modeling_evil.C"}})
    for name, value in VALUES.items():
        yield f"the whole file {name}", value


def damaged_files(path: Path, other: Path) -> Iterator[tuple[str, Callable[[], None], bool]]:
    """Yield (name, what to do, whether sums can be taken after it) for kinds of files that are no file of an export.

    Args:
        path: the file.
        other: a path where there is nothing.
    """

    def replaced(make: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            path.unlink()
            make()

        return run

    data = path.read_bytes()
    yield "empty", lambda: _write(path, b""), True
    yield "truncated", lambda: _write(path, data[: len(data) // 2]), True
    yield "zeros", lambda: _write(path, bytes(len(data))), True
    yield "noise", lambda: _write(path, hashlib.shake_256(data).digest(min(len(data), 10_000))), True
    yield "missing", replaced(lambda: None), True
    yield "a folder", replaced(path.mkdir), False
    yield "a dangling link", replaced(lambda: path.symlink_to(other)), False
    yield "a link to /dev/zero", replaced(lambda: path.symlink_to("/dev/zero")), False
    yield "a pipe", replaced(lambda: os.mkfifo(path)), False
    yield "sparse", replaced(lambda: _sparse(path)), False


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(20 << 30)

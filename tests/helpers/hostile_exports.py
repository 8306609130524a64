"""Exports of several kinds, for tests that change them as somebody would who means harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import WORDS, run_of

from glassformer.interop.transfer import export
from glassformer.run import Run

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
        patch.setattr("glassformer.interop.transfer.check_export", lambda *_: "not checked: by this test")
        export(run, KINDS[name][3], out)  # pyright: ignore[reportArgumentType]
    return out


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the value of a JSON file in place."""
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")

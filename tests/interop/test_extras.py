"""A package that is not installed is named, with the line that installs it, and nothing is left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import run_of

from glassformer.errors import UsageError
from glassformer.interop.exported import load_exported
from glassformer.interop.transfer import export

BYTES = {"tokenizer": "byte-bpe", "vocab_size": 300}
GELU = {"activation": "gelu", "positions": "rotary"}


def _hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a package seem not installed, also where a part of it was imported before."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(
    ("target", "package"), [("ctranslate2", "ctranslate2"), ("onnx", "onnx"), ("onnx", "onnxscript")]
)
def test_writing_needs_its_package(target: Any, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("lm" if target == "ctranslate2" else "classify", monkeypatch)
    _hide(package, monkeypatch)
    with pytest.raises(UsageError, match="needs the package") as error:
        export(run, target, tmp_path / "out")
    assert error.value.hint and f'pip install "glassformer[{target}]"' in error.value.hint
    assert not [*tmp_path.iterdir()]


def test_an_export_without_its_library_is_written_and_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = run_of("lm", monkeypatch, BYTES)
    _hide("transformers", monkeypatch)
    result = export(run, "hf", tmp_path / "out")
    assert result.facts.check is None and "needs the package transformers" in result.check_text()
    options: Any = {"temperature": 0.0, "max_new_tokens": 5}
    assert load_exported(tmp_path / "out").predict("a", **options) == run.predict("a", **options)

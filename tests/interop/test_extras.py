"""A package that is not installed is named, with the line that installs it, and nothing is left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exports import run_of

from glassformer.errors import UsageError
from glassformer.interop.export import export
from glassformer.interop.exported import load_exported

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
    run = run_of("lm", monkeypatch, BYTES, **GELU)
    _hide(package, monkeypatch)
    with pytest.raises(UsageError, match="needs the package") as error:
        export(run, target, tmp_path / "out")
    assert error.value.hint and f'pip install "glassformer[{target}]"' in error.value.hint
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("target", "package"), [("hf", "transformers")])
def test_an_export_that_cannot_be_loaded_is_written_and_not_checked(
    target: Any, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = run_of("lm", monkeypatch, BYTES, **GELU)
    _hide(package, monkeypatch)
    result = export(run, target, tmp_path / "out")
    assert result.facts.check is None and package in result.check_text()
    with pytest.raises(UsageError, match=f"needs the package {package}") as error:
        load_exported(tmp_path / "out").predict("a")
    assert error.value.hint == f'install it: pip install "glassformer[{target}]"'

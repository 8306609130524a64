"""What tests of imports and exports share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.exports import printed_by_card, run_of

from glassformer.interop import transfer
from glassformer.run import Run


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the comparison with transformers, which takes seconds to import; test_import_families.py has it."""
    monkeypatch.setattr(transfer, "check_import", lambda *_: None)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """`make("lm", positions="learned")` → a run of random weights."""
    return lambda task, *text, **form: run_of(task, monkeypatch, *text, **form)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """`printed(folder)` → what the Python lines of its card print."""
    return partial(printed_by_card, monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """`fresh()` → an empty folder, another at each call."""
    return partial(tmp_path_factory.mktemp, "fresh")

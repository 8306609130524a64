"""Fixtures of the Python interface."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: half of the time of a very small training is that of its plots."""
    monkeypatch.setattr("glassformer.report.write.draw_all", lambda *_, **__: {})

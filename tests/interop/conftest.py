"""What tests of imports share."""

from __future__ import annotations

import pytest

from glassformer.interop import transfer


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the comparison with transformers, which takes seconds to import; test_import_families.py has it."""
    monkeypatch.setattr(transfer, "check_import", lambda *_: None)

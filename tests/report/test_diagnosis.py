"""What `doctor` says of a warning from before training: what to try only where it is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from glassformer.report.diagnosis import data


def test_a_reason_is_no_remedy() -> None:
    advice = {"warnings": ["only 9: expect little; add some"], "advice": [["only 9: expect little", "add some"]]}
    before = {"warnings": ["only 9: expect little; add some"]}
    found = [list(data(cast(Any, SimpleNamespace(data=SimpleNamespace(preflight=each))))) for each in (advice, before)]
    assert [(f.matter, f.remedy) for [f] in found] == [
        ("only 9: expect little", "add some"),
        ("only 9: expect little; add some", ""),
    ]

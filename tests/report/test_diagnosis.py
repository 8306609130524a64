"""What `doctor` says of a warning from before training: what to try only where it is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from glassformer.report.diagnosis import data
from glassformer.runs.records import DataRecord


def test_a_reason_is_no_remedy() -> None:
    warning = {"matter": "only 9: expect little", "remedy": "add some", "kind": "few examples", "joint": "; "}
    records = [DataRecord(preflight={"warnings": [each]}) for each in (warning, "only 9: expect little; add some")]
    found = [list(data(cast(Any, SimpleNamespace(data=record)))) for record in records]
    assert [(f.matter, f.remedy) for [f] in found] == [
        ("only 9: expect little", "add some"),
        ("only 9: expect little; add some", ""),
    ]

"""What `doctor` says of a warning from before training: what to try only where it is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from glassformer.report.findings import RULES
from glassformer.runs.records import DataRecord


def test_a_reason_is_no_remedy() -> None:
    warnings = [{"matter": "only 9: expect little", "remedy": "add some"}, {"matter": "only 9 of 100 are used"}]
    record = DataRecord(preflight={"warnings": warnings})
    found = [(f.matter, f.remedy) for f in RULES["data"](cast(Any, SimpleNamespace(data=record)))]
    assert found == [("only 9: expect little", "add some"), ("only 9 of 100 are used", "")]

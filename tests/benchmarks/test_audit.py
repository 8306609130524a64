"""The table of injected faults: what the how-to says of it holds, and injected faults are what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.audit import OUT, TABLES, flipped, measure
from tests.helpers.audited import labelled

TABLE: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8"))
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "audit-your-data.md"


def test_the_guide_has_the_numbers_of_the_table_and_faults_that_can_be_learned_are_listed() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert {*TABLES} < {*TABLE}
    for name, row in TABLE.items():
        shares = f"{100 * row['recall']:.0f}% / {100 * row['precision']:.0f}%"
        assert f"| {name} | {row['injected']:,} in {row['examples']:,} | {shares} | {row['clean']:,} |" in text, name
        assert name in ("emotion", "irony") or min(row["recall"], row["precision"]) > 0.75, name
    assert TABLE["irony"]["listed"] < 0.01 * TABLE["irony"]["examples"], "where nothing can be learned little is listed"


def test_a_small_set_is_measured() -> None:
    found = measure(labelled(300), "label", "label-error", flipped)
    assert found["recall"] > 0.8 and found["precision"] > 0.8 and found["clean"] == 0 and found["injected"] == 15

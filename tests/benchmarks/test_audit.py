"""The table of injected faults: what the how-to says of it holds, and injected faults are what they should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.audit import OUT, TABLES, cut, flipped, measure, on_the_wrong_side, with_wrong_sets, with_wrong_tags
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


@pytest.mark.parametrize(
    ("inject", "texts", "answers", "n"),
    [
        (flipped, ["t"] * 200, ["a", "b", "c", "d"] * 50, 10),
        (with_wrong_sets, ["t"] * 300, ["a\nx", "b\ny", "c\nz"] * 100, 30),
        (with_wrong_tags, ["u v w"] * 200, ["O\nB-x\nO"] * 200, 20),
        (on_the_wrong_side, [f"a b {i}" for i in range(200)], [f"x y {i}" for i in range(200)], 4),
        (cut, ["a b c"] * 200, ["x y z u"] * 200, 2),
    ],
)
def test_faults_are_injected_where_it_is_said(
    inject: Callable[..., Any], texts: list[str], answers: list[str], n: int
) -> None:
    (_, found), injected = inject(texts, answers, 1)
    assert len(injected) == n and inject(texts, answers, 1) == ((_, found), injected)
    assert inject(texts, answers, 2)[1] != injected
    differ = {i for i, (a, b) in enumerate(zip(answers, found, strict=True)) if a != b}
    if inject is with_wrong_tags:
        tags = ((i, enumerate(zip(answers[i].split("\n"), found[i].split("\n"), strict=True), 1)) for i in differ)
        assert {(i, k) for i, each in tags for k, (a, b) in each if a != b} == injected
    assert differ == {row for row, _ in injected}


def test_a_small_set_is_measured() -> None:
    found = measure(labelled(300), "label", "label-error", flipped)
    assert found["recall"] > 0.8 and found["precision"] > 0.8 and found["clean"] == 0 and found["injected"] == 15

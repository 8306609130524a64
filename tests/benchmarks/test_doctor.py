"""The doctor's table: sound trainings are silent, sick ones named, and thresholds lie between what both gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.report.findings import ABOVE_CHANCE, BELOW_CHANCE, UPDATE_RATIOS
from glassformer.training.examine import DEAD, FIRST_LOSS, LARGE_SCORE, MOST_SHARP, MOST_UNIFORM

FILE = Path(__file__).parents[2] / "benchmarks" / "doctor.json"
TABLE: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
LIMITS = [
    ("first loss − ln n", ABOVE_CHANCE, "bias of a class + 5"),
    ("first loss − ln n", ABOVE_CHANCE, "output × 10"),
    ("first loss − fresh", FIRST_LOSS, "bias of a class + 5"),
    ("update ratio", UPDATE_RATIOS[0], "rate ÷ 100"),
    ("update ratio", UPDATE_RATIOS[1], "Muon's rate × 10"),
    ("largest score", LARGE_SCORE, "rate × 10"),
    ("largest score", LARGE_SCORE, "rate × 30"),
    ("largest score", LARGE_SCORE, "queries × 30"),
    ("sharp heads", MOST_SHARP, "rate × 30"),
    ("uniform heads", MOST_UNIFORM, "no queries"),
    ("dead units", DEAD, "bias of units − 10"),
]
"""A quantity, its threshold, and a disease that it shows."""
OVERLAPPING = [("dead units", DEAD, "rate × 30"), ("update ratio", UPDATE_RATIOS[1], "rate × 30")]
"""Quantities that tell nothing certain of a disease, of which the documentation says so."""


def test_sound_runs_are_silent_and_sick_ones_named_first() -> None:
    for name, row in TABLE["sound"].items():
        assert not any(finding.endswith("stop") for finding in row["findings"]) and row["most_in_a_run"] <= 1, name
        assert row["quantities"]["first loss − ln n"][0] > -BELOW_CHANCE / 2, "no untrained model is below guessing"
    for name, row in TABLE["sick"].items():
        assert row["first"] == {row["finds"]: row["runs"]}, name


def test_a_threshold_lies_between_sound_and_sick_where_it_is_not_listed_as_overlapping() -> None:
    for quantity, limit, disease in LIMITS:
        sound = [row["quantities"][quantity] for row in TABLE["sound"].values()]
        low, high = min(values[0] for values in sound), max(values[2] for values in sound)
        sick = TABLE["sick"][disease]["quantities"][quantity]
        assert high < limit < sick[0] or sick[2] < limit < low, (quantity, limit, disease)
    for quantity, limit, disease in OVERLAPPING:
        assert not TABLE["sick"][disease]["quantities"][quantity][0] > limit

"""The doctor's table: sound trainings are silent, sick ones named, and thresholds lie between what both gave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.doctor import DISEASES, OUT, SOUND, checked

from glassformer.explain.examine import DEAD, FIRST_LOSS, LARGE_SCORE, MOST_SHARP, MOST_UNIFORM
from glassformer.report.diagnosis import ABOVE_CHANCE, BELOW_CHANCE, UPDATE_RATIOS, Checkup

TABLE: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8"))
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
NO_TRAINING = {"bias of a class + 5": 2, "output × 10": 2, "labels not shifted": 2, "no causal mask": 2}
SHORT = {"not trained": 50, "branch detached": 50, "queries × 30": 50, "no queries": 2, "bias of units − 10": 2}
"""Diseases that show after so few steps."""


def places(checkup: Checkup) -> list[str]:
    """The places of what is to be stopped or looked at, in order."""
    return [finding.place for finding in checkup.findings if finding.grade != "know"]


def test_the_table_has_every_model_and_disease() -> None:
    assert TABLE["sound"].keys() == SOUND.keys() and TABLE["sick"].keys() == DISEASES.keys()
    assert all(row["runs"] >= (5 if name == "dates, Muon" else 20) for name, row in TABLE["sound"].items())
    assert all(row["runs"] >= 3 for row in TABLE["sick"].values())


@pytest.mark.parametrize("name", SOUND)
def test_sound_runs_are_silent(name: str) -> None:
    row = TABLE["sound"][name]
    assert not [finding for finding in row["findings"] if finding.endswith("stop")]
    assert row["most_in_a_run"] <= 1


@pytest.mark.parametrize("name", DISEASES)
def test_sick_runs_are_named_first(name: str) -> None:
    row = TABLE["sick"][name]
    assert row["finds"] == DISEASES[name].finds and row["first"] == {row["finds"]: row["runs"]}


@pytest.mark.parametrize(("quantity", "limit", "disease"), LIMITS)
def test_a_threshold_lies_between_sound_and_sick(quantity: str, limit: float, disease: str) -> None:
    sound = [row["quantities"][quantity] for row in TABLE["sound"].values()]
    low, high = min(values[0] for values in sound), max(values[2] for values in sound)
    sick = TABLE["sick"][disease]["quantities"][quantity]
    above = high < limit < sick[0]
    below = sick[2] < limit < low
    assert above or below, (low, high, limit, sick)


@pytest.mark.parametrize(("quantity", "limit", "disease"), OVERLAPPING)
def test_what_overlaps_is_listed_as_such(quantity: str, limit: float, disease: str) -> None:
    assert not TABLE["sick"][disease]["quantities"][quantity][0] > limit


def test_no_untrained_model_is_below_guessing() -> None:
    assert all(row["quantities"]["first loss − ln n"][0] > -BELOW_CHANCE / 2 for row in TABLE["sound"].values())


@pytest.mark.parametrize("name", NO_TRAINING | SHORT)
def test_a_disease_is_named_after_a_few_steps(name: str) -> None:
    disease = DISEASES[name]
    checkup, _ = checked(disease.model, 100, disease, (NO_TRAINING | SHORT)[name])
    assert places(checkup)[0] == disease.finds


@pytest.mark.slow
@pytest.mark.parametrize("name", DISEASES)
def test_every_disease_is_named(name: str) -> None:
    checkup, _ = checked(DISEASES[name].model, 100, DISEASES[name])
    assert places(checkup)[0] == DISEASES[name].finds


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_of_another_seed_is_silent(name: str) -> None:
    checkup, _ = checked(name, 100)
    assert len(places(checkup)) <= 1 and all(finding.grade != "stop" for finding in checkup.findings)

"""Scores under edits: those of a model changed by hand, and none where an edit changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.inference import Subject, untrained
from tests.helpers.small import data_of

from glassformer.errors import UsageError
from glassformer.explain.edits.findings import evaluate_edits
from glassformer.models.ensemble import Ensemble

STACKS = {"classify": "encoder", "translate": "decoder", "lm": "decoder"}


def subject_of(name: str) -> Subject:
    return untrained(name, n_layers=2, d_model=12, n_heads=3, d_ff=20)


def evaluated(subject: Subject, name: str, edit: str) -> Any:
    return evaluate_edits(subject, data_of(name).valid, [edit], subject.task.config.decode)


@for_each("name", STACKS)
def test_a_score_under_an_edit_is_that_of_the_model_changed_by_hand(name: str) -> None:
    subject, stack = subject_of(name), STACKS[name]
    changed = copy.deepcopy(subject.model)
    with torch.no_grad():
        getattr(changed, stack).layers[0].feed_forward.down_proj.weight.zero_()
        getattr(changed, stack).layers[0].feed_forward.down_proj.bias.zero_()
    found = evaluated(subject, name, f"{stack}.0.ff.branch=0")
    none = evaluated(Subject(subject.task, changed), name, f"{stack}.0.ff.hidden*1")
    assert found["after"] == pytest.approx(none["before"], abs=1e-6)
    assert none["before"] == pytest.approx(none["after"], abs=1e-9) and none["test"]["difference"] == pytest.approx(0)
    assert found["test"]["difference"] == pytest.approx(found["after"] - found["before"], abs=1e-6)
    assert found["test"]["ci95"][0] <= found["test"]["difference"] <= found["test"]["ci95"][1]


def test_a_language_model_is_scored_with_edits_at_positions() -> None:
    found = evaluated(subject_of("lm"), "lm", "decoder.0.self.scores[key:0]=blocked")
    assert found["after"] != found["before"] and found["groups"] == []


def test_groups_are_classes_and_those_that_lost_most_come_first() -> None:
    subject = subject_of("classify")
    split = data_of("classify").valid
    found = evaluated(subject, "classify", "pooled=0")
    assert sum(group["n"] for group in found["groups"]) == len(split)
    lost = [group["after"] - group["before"] for group in found["groups"]]
    assert lost == sorted(lost)
    right = sum(group["after"] * group["n"] for group in found["groups"]) / len(split)
    assert right == pytest.approx(found["after"])


@for_each(
    ("name", "edit", "message"),
    [
        ("classify", "embedding=B", "no second text"),
        ("classify", "embedding[token:999]=0", "out of range"),
        ("translate", "decoder.0.state[token:0]=0", "positions of the text"),
        ("translate", "decoder.0.self.scores[key:0]=blocked", "positions of the text"),
        ("lm", "decoder.0.state=B", "no second text"),
        ("translate", "nothing=0", "no step is called"),
    ],
)
def test_what_has_no_meaning_for_many_texts_is_refused(name: str, edit: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluated(subject_of(name), name, edit)


def test_of_an_ensemble_one_model_is_edited_and_scored_alone() -> None:
    first, second = (untrained("classify", seed=seed, n_layers=1) for seed in (0, 1))
    both = Subject(first.task, Ensemble([first.model, second.model]))
    decode = first.task.config.decode
    for member, alone in ((1, first), (2, second)):
        found = evaluate_edits(both, data_of("classify").valid, ["encoder.0.self.head0=0"], decode, member)
        expected = evaluated(alone, "classify", "encoder.0.self.head0=0")
        assert found == {**expected, "member": member}
    with pytest.raises(UsageError):
        evaluate_edits(both, data_of("classify").valid, ["pooled=0"], decode, 3)

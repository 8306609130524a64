"""Splits are pure functions of their arguments, complete, and never part a group."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.for_each import for_each

from glassformer.data.splits import Split, TextData, group_split, limited
from glassformer.errors import DataError


@for_each(("n", "fraction", "n_valid"), [(10, 0.1, 1), (1000, 0.1, 100), (3, 0.001, 1)])
def test_a_split_is_complete_disjoint_and_of_the_right_size(n, fraction, n_valid):
    train, valid = group_split(range(n), None, fraction, seed=3)
    assert len(valid) == n_valid
    assert sorted([*train, *valid]) == list(range(n))
    assert np.all(np.diff(train) > 0)


def test_a_group_never_parts_and_the_share_is_met():
    groups = [f"film{i % 97}" for i in range(2000)]
    train, valid = group_split(groups, None, 0.1, seed=5)
    assert sorted([*train, *valid]) == list(range(2000))
    assert {groups[i] for i in train}.isdisjoint({groups[i] for i in valid})
    assert 180 <= len(valid) <= 200


def test_validation_is_never_empty_with_few_large_groups():
    _, valid = group_split(["a"] * 10 + ["b"] * 5, None, 0.01, seed=0)
    assert list(valid) == list(range(10, 15))


def test_limit_draws_training_examples_by_seed_and_says_so():
    """It has one meaning for every data set: the first ones would be of one label where files are sorted."""
    texts = [str(i) for i in range(100)]
    data = TextData(train=Split(texts, texts), valid=Split(["v"], ["v"]))
    assert limited(data, None, 0) is data
    assert limited(data, 100, 0) is data
    cut = limited(data, 20, 0)
    assert len(cut.train) == 20 and cut.train.text == cut.train.answer == sorted(cut.train.text, key=int)
    assert int(cut.train.text[-1]) > 60
    assert limited(data, 20, 0) == cut != limited(data, 20, 1)
    assert "20 of 100 training examples are used, drawn by seed" in cut.findings[0].matter


def test_a_stratified_split_keeps_every_label_in_training_and_gives_each_its_share():
    labels = [*(["a"] * 600), *(["b"] * 300), *(["c"] * 95), *(["d"] * 4), "e"]
    texts = [f"text {i}" if i % 10 else f"{label} {i // 100}" for i, label in enumerate(labels)]
    train, valid = group_split(texts, labels, 0.1, seed=1)
    assert sorted([*train, *valid]) == list(range(1000))
    assert not {texts[i] for i in train} & {texts[i] for i in valid}, "equal texts stay together"
    assert {labels[i] for i in train} == set("abcde")
    counts = {label: sum(labels[i] == label for i in valid) for label in "abcde"}
    assert counts == {"a": 60, "b": 30, "c": 10, "d": 0, "e": 0}
    again = group_split(texts, labels, 0.1, seed=1)
    assert np.array_equal(valid, again[1])
    assert not np.array_equal(valid, group_split(texts, labels, 0.1, seed=2)[1])


def test_small_labels_are_validated_in_turn_of_what_they_are_owed():
    """Ten labels of six: six validation examples for ten labels, none with two."""
    labels = [f"{i % 10}" for i in range(60)]
    _, valid = group_split(range(60), labels, 0.1, seed=0)
    assert len(valid) == 6 and len({labels[i] for i in valid}) == 6


def test_a_text_that_has_every_label_is_set_aside_where_others_have_them_too() -> None:
    train, valid = group_split("aabbcc", "XYYZZX", 0.3, seed=0)
    assert len(valid) == 2 and {"XYYZZX"[i] for i in train} == {*"XYZ"}


def test_the_last_example_of_a_label_is_given_back_to_training():
    """Equal texts labelled in two ways: the rarer label has no other example."""
    texts, labels = ["same", "same", *map(str, range(8))], ["a", "rare", *"aaaaaaaa"]
    for seed in range(20):
        train, _ = group_split(texts, labels, 0.4, seed=seed)
        assert "rare" in {labels[i] for i in train}


@for_each(("texts", "labels"), [("aabbb", "XYXXX"), ("aabbbcc", "XYXXXXZ"), ("bbbaa", "XXXXY"), ("aabbc", "XYXYX")])
@for_each("seed", range(3))
def test_conflicting_labels_of_equal_texts_leave_something_to_validate_on(texts: str, labels: str, seed: int) -> None:
    train, valid = group_split(texts, labels, 0.5, seed)
    assert len(valid) and {labels[i] for i in train} == set(labels)
    assert not {texts[i] for i in train} & {texts[i] for i in valid}


@for_each(("texts", "labels"), [("aabb", "XYXZ"), ("xyz", "abc")])
def test_texts_that_each_hold_the_last_example_of_a_label_cannot_be_set_aside(texts: str, labels: str) -> None:
    with pytest.raises(DataError, match="each text holds the last example of a label"):
        group_split(texts, labels, 0.5, 0)


def test_a_limit_leaves_an_example_of_each_label_where_there_is_room():
    """Of two classes of 200 texts and six of ten, a plain sample of 60 has not all."""
    answers = [*["a", "b"] * 200, *[f"rare{i % 6}\nb" for i in range(60)]]
    data = TextData(Split([f"text {i}" for i in range(460)], answers), Split(["x"], ["a"]))
    for seed in range(5):
        few = limited(data, 60, seed).train
        found = {part for answer in few.answers for part in answer.split("\n")}
        assert found == {"a", "b", *(f"rare{i}" for i in range(6))}
        assert len(few) == 60 and len(limited(data, 4, seed).train) == 4


def test_columns_stay_together_and_are_equally_long():
    taken = Split(["a", "b", "c"], ["A", "B", "C"], source="x").take([2, 0])
    assert (taken.text, taken.answer, taken.source) == (["c", "a"], ["C", "A"], "x")
    with pytest.raises(DataError, match=r"pairs\.tsv: 2 texts, but 1 answers"):
        Split(["a", "b"], ["c"], source="pairs.tsv")

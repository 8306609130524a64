"""Planted label errors, contradictions, duplicates and leaks are found where they are, and clean data is silent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.audited import NAMES, audit, labelled, of_kind

from glassformer.errors import DataError
from glassformer.evaluate.audit import features, label_errors
from glassformer.evaluate.audit.audit import audit_parts
from glassformer.evaluate.audit.duplicates import contradictions, groups_of, near_duplicates
from glassformer.evaluate.audit.features import text_features
from glassformer.evaluate.audit.findings import Part
from glassformer.evaluate.audit.label_errors import (
    FOLDS,
    calibrated,
    confident_learning,
    judge_labels,
    stratified_folds,
)
from glassformer.evaluate.audit.label_leaks import label_leaks


def test_flipped_labels_are_listed_with_line_and_suggestion() -> None:
    texts, labels = labelled()
    wrong = {10: labels[10], 71: labels[71], 200: labels[200]}
    for i, label in wrong.items():
        labels[i] = NAMES[(NAMES.index(label) + 1) % 3]
    found = of_kind(audit(texts, labels), "label-error")
    assert {finding.line - 2: finding.suggested for finding in found} == wrong
    assert all(finding.label == labels[finding.line - 2] and finding.file == "a.csv" for finding in found)
    assert [finding.score for finding in found] == sorted((finding.score for finding in found), reverse=True)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clean_labels_are_not_listed(seed: int) -> None:
    report = audit(*labelled(seed=seed))
    assert report.findings == [] and report.not_made == {}
    assert report.numbers["accuracy"] > 0.9


def test_labels_without_relation_to_the_texts_are_not_listed() -> None:
    """A model that knows nothing accuses nobody."""
    texts, _ = labelled(300)
    labels = [str(x) for x in np.random.default_rng(0).integers(2, size=len(texts))]
    assert len(of_kind(audit(texts, labels), "label-error")) <= 3


def test_a_model_s_vectors_judge_in_place_of_words() -> None:
    rng, labels = np.random.default_rng(0), np.arange(240) % 3
    vectors = np.eye(3)[labels] * 4 + rng.normal(size=(240, 3)) * 0.3
    given = labels.copy()
    given[7] = (labels[7] + 1) % 3
    judged = judge_labels(partial(text_features, ["no words"] * 240, vectors), given, np.arange(240))
    assert not isinstance(judged, str)
    assert np.flatnonzero(judged.listed).tolist() == [7] and judged.suggested[7] == labels[7]


def test_nothing_to_audit_is_named() -> None:
    with pytest.raises(DataError, match="no examples to audit"):
        audit([], [])


def test_rare_labels_are_not_judged() -> None:
    texts, labels = labelled()
    labels[5] = "rare"
    report = audit(texts, labels)
    assert of_kind(report, "label-error") == [] and report.numbers["unjudged"] == 1


@pytest.mark.parametrize(
    ("texts", "labels", "reason"),
    [
        (["a b", "c d", "e f"], ["x", "x", "x"], "one label"),
        (["a b", "c d", "e f"], ["x", "y", "z"], "no label has more than 1"),
        (["same text"] * 40, ["x", "y"] * 20, "too few different texts"),
        ([f"{'!' * i}" for i in range(1, 41)], ["x", "y"] * 20, "no words"),
    ],
)
def test_what_cannot_be_judged_has_a_reason(texts: list[str], labels: list[str], reason: str) -> None:
    report = audit(texts, labels)
    assert reason in report.not_made["label-error"] and "label-error" not in report.counts


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(0, 3), min_size=10, max_size=80), n_groups=st.integers(6, 80))
def test_folds_keep_groups_together(labels: list[int], n_groups: int) -> None:
    groups = np.arange(len(labels)) % n_groups
    folds = stratified_folds(np.array(labels), groups)
    assert {*folds.tolist()} <= {*range(FOLDS)}
    for group in range(n_groups):
        assert len(np.unique(folds[groups == group])) <= 1
    if n_groups >= len(labels):
        for label in set(labels):
            sizes = np.bincount(folds[np.array(labels) == label], minlength=FOLDS)
            assert sizes.max() - sizes.min() <= 1


def test_confident_learning_counts_off_the_diagonal() -> None:
    """By hand: thresholds 0.82 and 0.86; the tenth of each class reaches that of the other."""
    own = [*[0.9] * 9, 0.1]
    p = np.array([[x, 1 - x] for x in own] + [[1 - x, x] for x in [*[0.95] * 9, 0.05]])
    labels = np.repeat([0, 1], 10)
    score, listed, n_candidates, share = confident_learning(p, labels)
    assert n_candidates == 2 and share == pytest.approx(0.05)
    assert np.flatnonzero(listed).tolist() == [9, 19]
    replaced = 0.05 * 0.9 * 1.0
    assert score[9] == pytest.approx(replaced / (replaced + 0.95 * 0.1))
    assert score[19] > score[9] > score[0]


def test_calibration_has_no_larger_loss() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=400)
    logits = np.eye(3)[labels] * 2 + rng.normal(size=(400, 3)) * 2
    p = np.exp(logits * 4)
    p /= p.sum(axis=1, keepdims=True)
    better, temperature = calibrated(p, labels)
    rows = np.arange(400)
    assert temperature > 1 and np.log(better[rows, labels]).mean() > np.log(p[rows, labels]).mean()
    assert better.sum(axis=1) == pytest.approx(1) and (better.argmax(axis=1) == p.argmax(axis=1)).all()


def test_only_a_sample_of_many_texts_is_fitted_and_all_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "MAX_TRAIN", 200)
    monkeypatch.setattr(label_errors, "CHUNK", 32)
    texts, labels = labelled(400)
    labels[3] = NAMES[(NAMES.index(labels[3]) + 1) % 3]
    assert 5 in [finding.line for finding in of_kind(audit(texts, labels), "label-error")]


def test_equal_texts_with_other_labels() -> None:
    texts = ["Good  film", "good film", "GOOD FILM ", "dull", "dull", "fine"]
    labels = ["pos", "pos", "neg", "neg", "pos", "pos"]
    found = of_kind(audit(texts, labels), "contradiction")
    assert [(f.line, f.suggested, f.other_line) for f in found] == [(4, "pos", 2), (5, "", 6), (6, "", 5)]
    assert list(contradictions(groups_of(["a", "b"]), ["x", "y"])) == []


def test_near_duplicates_within_and_across_parts() -> None:
    texts, labels = labelled(60)
    near = texts[4].upper() + " !"
    parts = [
        Part("train", "a.csv", [*texts, near], [*labels, labels[4]], range(2, 63), "a.csv"),
        Part("test", "b.csv", ["quite another text of its own", texts[7]], [labels[0], NAMES[0]], range(2, 4), "b.csv"),
    ]
    report = audit_parts(parts, "label")
    [within], [across] = of_kind(report, "near-duplicate"), of_kind(report, "split-overlap")
    assert (within.file, within.line, within.other_file, within.other_line) == ("a.csv", 62, "a.csv", 6)
    assert (across.file, across.line, across.other_file, across.other_line) == ("b.csv", 3, "a.csv", 9)
    assert within.score == across.score == 1.0 and within.suggested == "" and across.suggested == labels[7]
    assert [f.line for f in of_kind(report, "contradiction")] == [9, 3], "they are distinguished from each other, too"


def jaccard(first: str, second: str) -> float:
    a, b = ({text[i : i + 5] for i in range(max(1, len(text) - 4))} for text in (first, second))
    return len(a & b) / len(a | b)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abc ", min_size=1, max_size=40), min_size=2, max_size=25))
def test_near_duplicates_are_what_an_exact_comparison_gives(texts: list[str]) -> None:
    texts = [" ".join(text.split()) for text in texts]
    found = {pair.later: pair for pair in near_duplicates(texts)}
    for later, pair in found.items():
        assert pair.earlier < later and pair.similarity == pytest.approx(jaccard(texts[later], texts[pair.earlier]))
        assert pair.similarity >= 0.8
    for later, text in enumerate(texts):
        if text and text in texts[:later]:
            assert found[later].similarity == 1.0


@given(st.lists(st.text(max_size=30), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_texts_are_compared(texts: list[str]) -> None:
    """Surrogates, emoji, empty texts, texts of punctuation alone."""
    texts = [*texts, "", "\ud800 x", "!?"]
    assert all(0 <= pair.earlier < pair.later < len(texts) for pair in near_duplicates(texts))


def test_many_equal_texts_are_reported_once_each() -> None:
    found = near_duplicates(["the very same text"] * 3000)
    assert len(found) == 2999


def test_a_word_that_gives_the_label_away() -> None:
    texts, labels = labelled()
    marked = [i for i, label in enumerate(labels) if label == "food"][::2]
    for i in marked:
        texts[i] += " [Food]"
    [found] = of_kind(audit(texts, labels), "label-leak")
    assert (found.token, found.label, found.line, found.other_line) == ("[food]", "food", marked[0] + 2, marked[1] + 2)
    assert (found.numbers["with_token"], found.numbers["with_both"], found.numbers["with_label"]) == (40, 40, 80)
    assert found.numbers["p_value"] < 1e-10 and found.score == 1.0


def test_a_frequent_word_of_all_labels_is_no_leak() -> None:
    texts, labels = labelled()
    assert label_leaks([f"{text} the" for text in texts], [[NAMES.index(x)] for x in labels]) == []


def test_few_texts_prove_no_leak() -> None:
    """Five texts of ten with a word of their own can be chance among so many words."""
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(0, 40, 12))) for _ in range(12)]
    assert label_leaks(texts, [[i % 2] for i in range(12)]) == []


def test_the_same_data_gives_the_same_report() -> None:
    texts, labels = labelled()
    labels[3], texts[9] = NAMES[1], texts[8]
    assert audit(texts, labels).to_json() == audit(texts, labels).to_json()

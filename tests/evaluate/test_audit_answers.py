"""Planted errors of label sets, tags and numbers are found where they are, and clean data is silent."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.audited import NAMES, audit, made_words, of_kind

from glassformer.evaluate.audit import features
from glassformer.evaluate.audit.audit import audit_parts
from glassformer.evaluate.audit.features import sampled
from glassformer.evaluate.audit.findings import Part
from glassformer.evaluate.audit.label_errors import confident_sets

# --- several labels in a text -------------------------------------------------------------------------------------


def with_sets(n: int = 300, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts with no, one or two labels, one a line, with eight of the forty words of each."""
    rng = np.random.default_rng(seed)
    words = made_words(rng, 180)
    own = {name: words[60 + 40 * i : 100 + 40 * i] for i, name in enumerate(NAMES)}
    chosen = [sorted(rng.choice(NAMES, i % 3, replace=False).tolist()) for i in range(n)]
    texts = [
        " ".join([*rng.choice(words[:60], 5), *(word for name in names for word in rng.choice(own[name], 8))])
        for names in chosen
    ]
    return texts, ["\n".join(names) for names in chosen]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clean_sets_are_not_listed(seed: int) -> None:
    report = audit(*with_sets(seed=seed), "labels")
    assert of_kind(report, "label-error") == [] and report.not_made == {}
    assert report.numbers["micro_f1"] > 0.9 > report.numbers["most_frequent"] and report.numbers["unjudged"] == 0


def test_missing_and_added_labels_are_listed_once_a_text_with_what_a_table_would_hold() -> None:
    texts, answers = with_sets()
    right = {4: answers[4], 30: answers[30], 200: answers[200]}
    assert [len(answer.split()) for answer in right.values()] == [1, 0, 2]
    answers[4], answers[30] = "", NAMES[0]
    answers[200] = answers[200].split("\n")[0]
    found = of_kind(audit(texts, answers, "labels"), "label-error")
    assert {f.line - 2: f.suggested for f in found} == {4: right[4], 30: "[]", 200: right[200].replace("\n", ";")}
    assert {f.line - 2: f.label for f in found} == {4: "[]", 30: NAMES[0], 200: answers[200]}


def test_sets_of_equal_texts_and_words_that_give_a_label_away() -> None:
    texts, answers = with_sets()
    part = Part("train", "a.csv", [*texts, *["same text"] * 3], [*answers, "", "", NAMES[0]], range(2, 305), "a.csv")
    [found] = of_kind(audit_parts([part], "labels"), "contradiction")
    assert (found.line, found.label, found.suggested) == (304, NAMES[0], "[]")
    texts = [text + (" [Food]" if "food" in answer else "") for text, answer in zip(texts, answers, strict=True)]
    [leak] = of_kind(audit(texts, answers, "labels"), "label-leak")
    n = sum("food" in answer for answer in answers)
    assert (leak.token, leak.label, leak.numbers["with_both"], leak.numbers["with_label"]) == ("[food]", "food", n, n)


@pytest.mark.parametrize(
    ("texts", "answers", "reason"),
    [
        (["a b", "c d", "e f"], ["x", "", "y"], "too few different texts"),
        ([f"text {i}" for i in range(40)], ["x"] * 9 + [""] * 31, "a label needs 10 texts with it"),
        ([f"text {i}" for i in range(40)], [""] * 40, "a label needs 10 texts with it"),
        ([f"text {i}" for i in range(40)], ["x"] * 40, "a label needs 10 texts with it"),
        ([f"{'!' * i}" for i in range(1, 41)], ["x", ""] * 20, "no words"),
        (["same text"] * 40, ["x", ""] * 20, "too few different texts"),
    ],
)
def test_sets_that_cannot_be_judged_have_a_reason(texts: list[str], answers: list[str], reason: str) -> None:
    report = audit(texts, answers, "labels")
    assert reason in report.not_made["label-error"] and "label-error" not in report.counts


def test_confident_sets_by_hand() -> None:
    """One of ten labels that are there has probability 0.001, and one of thirty that are missing 0.95."""
    given = np.repeat([True, False], [10, 30])[:, None]
    p = np.array([*[0.9] * 9, 0.001, *[0.02] * 29, 0.95])[:, None]
    score, listed, n_candidates, share = confident_sets(p, given)
    assert np.flatnonzero(listed[:, 0]).tolist() == [9, 39] and n_candidates == 2 and share == pytest.approx(0.05)
    added = 0.05 / 3  # as many as are missing, among three times as many texts
    assert score[9, 0] == pytest.approx(added * 0.999 / (added * 0.999 + 0.95 * 0.001))
    assert score[39, 0] == pytest.approx(0.05 * 0.95 / (0.05 * 0.95 + (1 - added) * 0.05))


# --- a tag for each word ------------------------------------------------------------------------------------------


def tagged(n: int = 200, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of words, some of which have a tag of their own."""
    rng = np.random.default_rng(seed)
    words = [f"{word}{'ing' if i < 15 else 'ton' if i < 30 else ''}" for i, word in enumerate(made_words(rng, 80))]
    tag_of = {word: "B-name" if i < 15 else "B-place" if i < 30 else "O" for i, word in enumerate(words)}
    chosen = [rng.choice(words, 9).tolist() for _ in range(n)]
    return [" ".join(each) for each in chosen], ["\n".join(tag_of[word] for word in each) for each in chosen]


def test_wrong_tags_are_listed_with_their_word() -> None:
    texts, answers = tagged()
    assert audit(texts, answers, "tags").findings == []
    wrong = dict[tuple[int, int], tuple[str, str, str]]()
    for i, word in ((3, 0), (50, 8), (120, 4)):
        tags = answers[i].split("\n")
        before, tags[word] = tags[word], "B-place" if tags[word] == "O" else "O"
        answers[i] = "\n".join(tags)
        wrong[i + 2, word + 1] = texts[i].split()[word], tags[word], before
    report = audit(texts, answers, "tags")
    found = of_kind(report, "label-error")
    assert {(f.line, f.numbers["word"]): (f.token, f.label, f.suggested) for f in found} == wrong
    assert all(f.text == texts[f.line - 2] for f in found) and report.numbers["accuracy"] > 0.9


def test_the_same_sentence_with_other_tags() -> None:
    """Case counts: it is part of what a tag is about."""
    texts, answers = ["Anna saw Rome", "Anna saw Rome", "Anna saw Rome", "anna saw rome"], ["B-a\nO\nB-b"] * 4
    answers[1], answers[3] = "B-a\nO\nO", "O\nO\nO"
    [found] = of_kind(audit(texts, answers, "tags"), "contradiction")
    assert (found.line, found.token, found.label, found.suggested) == (3, "Rome", "O", "B-b")
    assert (found.other_line, found.numbers) == (2, {"word": 3})
    near = {f.line: f.other_line for f in of_kind(audit(texts, answers, "tags"), "near-duplicate")}
    assert near == {4: 2, 5: 2}, "one of another case is no contradiction, but nearly equal"


def test_empty_sentences_have_no_tags_to_judge() -> None:
    texts, answers = tagged()
    report = audit(["", *texts, ""], ["", *answers, ""], "tags")
    assert report.findings == [] and "2 empty texts left out" in report.notes


def test_tags_that_cannot_be_judged_have_a_reason() -> None:
    assert "one label" in audit(["a b", "c d"], ["O\nO"] * 2, "tags").not_made["label-error"]
    assert "needs 10 examples" in audit(["a b", "c d"], ["O\nB-x"] * 2, "tags").not_made["label-error"]
    same = audit(["a b"] * 40, ["O\nB-x"] * 40, "tags")
    assert "too few different texts" in same.not_made["label-error"] and of_kind(same, "near-duplicate") != []


def test_only_the_words_of_some_sentences_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "MAX_TRAIN", 900)
    texts, answers = tagged(300)
    tags = answers[7].split("\n")
    tags[2] = "B-place" if tags[2] == "O" else "O"
    answers[7] = "\n".join(tags)
    assert (9, 3) in [(f.line, f.numbers["word"]) for f in of_kind(audit(texts, answers, "tags"), "label-error")]


def test_numbers_of_equal_texts_are_compared_as_numbers() -> None:
    report = audit(["a b", "a b", "A b", "c"], ["3", "3.0", "4", "5"], "number")
    [found] = of_kind(report, "contradiction")
    assert (found.line, found.label, found.suggested, found.other_label) == (4, "4", "3", "3")
    assert found.score == 1.0
    near = [*["a b"] * 2, *[f"text {i}" for i in range(20)]], ["3", "3.5", *[str(i) for i in range(20)]]
    first, _ = of_kind(audit(*near, "number"), "contradiction")
    assert first.score == pytest.approx(0.5 / np.std([float(x) for x in near[1]]))
    assert "label-leak" not in report.counts and "numbers" in report.not_made["label-error"]


def test_a_sample_is_in_order_and_the_same_each_time() -> None:
    assert sampled(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert sampled(100, 10).tolist() == sorted({*sampled(100, 10).tolist()}) and len(sampled(100, 10)) == 10

"""Planted faults are found where they are, and clean data is silent."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.audited import MADE, NAMES, audit, labelled, of_kind, pairs, rows_of, tagged, with_sets

from glassformer.data.datasets.columns import Columns
from glassformer.errors import DataError
from glassformer.evaluate import audit as audits


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", MADE)
def test_clean_data_is_silent_and_every_check_is_made(kind, seed):
    report = audit(*MADE[kind](seed=seed), kind)
    assert report.findings == [] and report.not_made == {"split-overlap": "there is one part"}
    of_texts = ["contradiction", *["label-leak"] * (kind != "tags"), "label-error", "near-duplicate"]
    assert [*report.counts] == (["wrong-language", "length"] if kind == "target" else of_texts)


def test_wrong_labels_are_found_with_line_and_suggestion():
    texts, labels = labelled()
    wrong = {10: labels[10], 71: labels[71], 200: labels[200]}
    for i, label in wrong.items():
        labels[i] = NAMES[(NAMES.index(label) + 1) % 3]
    found = of_kind(audit(texts, labels), "label-error")
    assert {f.place: f.suggested for f in found} == {f"a.csv:{i + 2}": label for i, label in wrong.items()}
    assert {f.place: f.answer for f in found} == {f"a.csv:{i + 2}": labels[i] for i in wrong}
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    assert found[0].matter == f"{found[0].answer}, probably {found[0].suggested}"


def test_labels_that_are_missing_or_too_many_are_found():
    texts, answers = with_sets()
    assert [len(answers[i].split()) for i in (4, 30, 200)] == [1, 0, 2]
    first, second = answers[200].split("\n")
    expected = {(6, f"without {answers[4]}, probably with {answers[4]}"), (32, "with sport, probably without sport")}
    answers[4], answers[30], answers[200] = "", "sport", first
    found = of_kind(audit(texts, answers, "sets"), "label-error")
    expected.add((202, f"without {second}, probably with {second}"))
    assert {(int(f.place[6:]), f.matter) for f in found} == expected
    assert {f.place: f.answer for f in found} == {"a.csv:6": "[]", "a.csv:32": "sport", "a.csv:202": first}


def test_wrong_tags_are_found_with_their_word():
    texts, answers = tagged()
    expected = set[tuple[str, str]]()
    for i, word in ((3, 0), (50, 8), (120, 4)):
        tags = answers[i].split("\n")
        before, tags[word] = tags[word], "B-place" if tags[word] == "O" else "O"
        answers[i] = "\n".join(tags)
        matter = f"word {word + 1}, {texts[i].split()[word]!r}: {tags[word]}, probably {before}"
        expected.add((f"a.csv:{i + 2}", matter))
    assert {(f.place, f.matter) for f in of_kind(audit(texts, answers, "tags"), "label-error")} == expected


@pytest.mark.parametrize(
    ("texts", "answers", "kind", "reason"),
    [
        (["a b", "c d", "e f"], ["x", "y", "z"], "label", "two labels need 10 examples each"),
        (["same text"] * 40, ["x", "y"] * 20, "label", "too few different texts"),
        (["!" * i for i in range(1, 41)], ["x", "y"] * 20, "label", "no words"),
        ([f"text {i}" for i in range(40)], ["x", "y", "y", "y"] * 10, "label", "no more often than the most frequent"),
        ([f"text {i}" for i in range(40)], ["x"] * 9 + [""] * 31, "sets", "two labels need 10 examples each"),
        ([f"text {i}" for i in range(40)], [""] * 40, "sets", "no text has a label"),
        (["same text"] * 40, ["x", ""] * 20, "sets", "too few different texts"),
        (["a b", "c d"], ["O\nB-x"] * 2, "tags", "two labels need 10 examples each"),
        (["a b"] * 40, ["O\nB-x"] * 40, "tags", "too few different texts"),
        ([f"a {i}" for i in range(40)], [f"{'ab'[i % 2]} {i}" for i in range(40)], "target", "two sides look alike"),
    ],
)
def test_what_cannot_be_judged_has_a_reason(texts, answers, kind, reason):
    report, check = audit(texts, answers, kind), "wrong-language" if kind == "target" else "label-error"
    assert reason in report.not_made[check] and check not in report.counts


@pytest.mark.parametrize(
    ("texts", "answers", "kind", "found"),
    [
        (
            ["Good  film", "good film", "GOOD FILM ", "dull", "dull", "fine"],
            ["pos", "pos", "neg", "neg", "pos", "pos"],
            "label",
            [(4, "neg, but pos at a.csv:2", "pos"), (5, "neg, but pos at a.csv:6", ""), (6, "pos, but neg at a.csv:5", "")],  # noqa: E501
        ),
        (["same text"] * 3, ["", "", "food\nsport"], "label", [(4, "food;sport, but [] at a.csv:2", "[]")]),
        (["a b", "a b", "A b", "c"], ["3", "3.0", "4", "5"], "number", [(4, "4, but 3 at a.csv:2", "3")]),
        (
            ["Anna saw Rome", "Anna saw Rome", "Anna saw Rome", "anna saw rome"],
            ["B-a\nO\nB-b", "B-a\nO\nO", "B-a\nO\nB-b", "O\nO\nO"],
            "tags",
            [(3, "B-a O O, but B-a O B-b at a.csv:2", "B-a O B-b")],
        ),
    ],
)  # fmt: skip
def test_equal_texts_with_other_answers(texts, answers, kind, found):
    """Case counts where words have tags."""
    each = of_kind(audit(texts, answers, kind), "contradiction")
    assert [(int(f.place[6:]), f.matter, f.suggested) for f in each] == found


def test_numbers_and_labels_of_pairs_are_not_judged():
    texts, labels = labelled()
    rows = rows_of(texts, labels)
    columns = Columns((0, 1, 2), ("text", "pair", "label"), 3)
    of_pairs = replace(rows, columns=columns)
    report = audits.audit({"train": of_pairs}, "label")
    assert "label-error" not in {*report.counts, *report.not_made} and "label-leak" in report.counts
    assert [*audit(texts, ["1"] * len(texts), "number").counts] == ["contradiction", "near-duplicate"]


def test_near_duplicates_within_and_across_parts():
    texts, labels = labelled(60)
    parts = {
        "train": rows_of([*texts, texts[4].upper() + " !"], [*labels, labels[4]]),
        "test": rows_of(["quite another text of its own", texts[7]], [labels[0], NAMES[0]], "b.csv"),
    }
    report = audits.audit(parts, "label")
    [within], [across] = of_kind(report, "near-duplicate"), of_kind(report, "split-overlap")
    assert (within.place, within.matter, within.suggested) == ("a.csv:62", "100% like a.csv:6", "")
    assert (across.place, across.suggested) == ("b.csv:3", labels[7])
    assert across.matter == f"100% like a.csv:9, which has {labels[7]}" and within.score == across.score == 1.0
    assert [f.place for f in of_kind(report, "contradiction")] == ["a.csv:9", "b.csv:3"]


def test_pairs_of_an_earlier_part_are_found():
    source, target = pairs(200)
    test = rows_of([*source[150:], source[4], source[9]], [*target[150:], target[4], ""], "c")
    report = audits.audit({"train": rows_of(source[:150], target[:150]), "test": test}, "target")
    [found] = of_kind(report, "split-overlap")
    assert (found.place, found.matter) == ("c:52", "100% like a.csv:6")
    assert report.notes == ["1 example with an empty text left out"]


def jaccard(first: str, second: str) -> float:
    a, b = ({text[i : i + 5] for i in range(max(1, len(text) - 4))} for text in (first, second))
    return len(a & b) / len(a | b)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abc ", min_size=1, max_size=40).filter(str.strip), min_size=1, max_size=25))
def test_near_duplicates_are_what_an_exact_comparison_gives(texts):
    texts = [" ".join(text.split()) for text in texts]
    found = {later: (earlier, alike) for later, earlier, alike in audits.near_duplicates(texts, ["train"] * len(texts))}
    for later, (earlier, alike) in found.items():
        assert earlier < later and alike == pytest.approx(jaccard(texts[later], texts[earlier])) and alike >= 0.8
    assert all(found[i][1] == 1.0 for i, text in enumerate(texts) if text in texts[:i])


def test_planted_near_duplicates_are_found():
    """One letter in sixty differs: a similarity of 0.85."""
    texts, _ = labelled(300)
    near = [f"{text[:30]}z{text[31:]}" for text in texts[:100]]
    found = {later: earlier for later, earlier, _ in audits.near_duplicates([*texts, *near], ["train"] * 400)}
    assert found == {300 + i: i for i in range(100)}
    assert len(audits.near_duplicates(["the very same text"] * 3000, ["train"] * 3000)) == 2999, "each once"


def test_a_word_that_gives_the_label_away():
    texts, labels = labelled()
    marked = [i for i, label in enumerate(labels) if label == "food"][::2]
    for i in marked:
        texts[i] += " [Food]"
    labels = [f"{label}\nall" for label in labels]  # that every text has, and so no word gives away
    [found] = of_kind(audit(texts, labels), "label-leak")
    assert found.matter == "'[food]': 40 of 40 texts with it, and of 80 with food"
    assert (found.place, found.score) == (f"a.csv:{marked[0] + 2}", 1.0)


def test_sentences_of_the_other_side_and_copies_are_found():
    source, target = pairs()
    target[5], target[30] = source[5].upper(), source[400]
    source[80], target[80] = target[80], source[80]
    found = of_kind(audit(source, target, "target"), "wrong-language")
    sides = [(7, "target"), (32, "target"), (82, "source"), (82, "target")]
    expected = [(line, f"its {side} looks like the other side") for line, side in sides]
    assert sorted((int(f.place[6:]), f.matter) for f in found) == expected
    assert {f.place: f.answer for f in found}["a.csv:7"] == target[5]


def test_odd_lengths_are_found():
    source, target = pairs()
    target[50], target[51], target[52] = target[50].split()[0], " ".join([target[51]] * 4), ""
    found = sorted((f.place, f.matter) for f in of_kind(audit(source, target, "target"), "length"))
    assert found == [(f"a.csv:{i}", f"its target is {x} for its source") for i, x in ((52, "short"), (53, "long"))]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=60))
def test_any_texts_are_audited_and_the_same_each_time(rows):
    texts, answers = ["a", *(a for a, _ in rows)], ["b", *(b for _, b in rows)]
    for kind in ("target", "label"):
        assert audit(texts, answers, kind) == audit(texts, answers, kind)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_the_report_is_a_formula(start, tmp_path):
    text = f"{start}1+1, and more"
    report = audit([text, text, "x"], ["a", "b", "a"])
    audits.write_report(tmp_path / "r.csv", report.findings)
    with open(tmp_path / "r.csv", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["text"] for row in rows] == [f"'{text}"] * 2 and rows[0]["matter"] == "a, but b at a.csv:3"


# --- the model that judges ----------------------------------------------------------------------------------------


def test_a_label_has_no_part_in_its_own_probability():
    """The same features with another label in one row: its suggestion stays, in its own fold."""
    rng, labels = np.random.default_rng(0), np.arange(240) % 3
    x = np.eye(3)[labels] * 4 + rng.normal(size=(240, 3)) * 0.3
    given = labels.copy()
    given[7] = (labels[7] + 1) % 3
    score, suggested = audits.judge_labels(x, given, np.arange(240))
    assert np.flatnonzero(score).tolist() == [7] and suggested[7] == labels[7]
    with pytest.raises(audits.NotMade):
        audits.judge_labels(x, given, np.zeros(240, dtype=np.int64))


def test_the_probability_that_a_label_is_wrong_by_hand():
    """The tenth of each class is surely of the other; a probability of 0.15 is not sure enough."""
    own = [*[0.9] * 8, 0.15, 0.01]
    p = np.array([[x, 1 - x] for x in own] + [[1 - x, x] for x in [*[0.95] * 9, 0.005]])
    score = audits.doubted_labels(p, np.repeat([0, 1], 10))
    assert np.flatnonzero(score).tolist() == [9, 19]
    replaced = audits.ASSUMED * 0.99 * 10 / 20
    assert score[9] == pytest.approx(replaced / (replaced + (1 - audits.ASSUMED) * 0.01)) and score[19] > score[9]


def test_calibration_has_no_larger_loss():
    rng = np.random.default_rng(0)
    labels, rows = rng.integers(3, size=400), np.arange(400)
    logits = np.eye(3)[labels] * 2 + rng.normal(size=(400, 3)) * 2
    p = np.exp(logits * 4)
    p /= p.sum(axis=1, keepdims=True)
    better = audits.calibrated(p, labels)
    assert np.log(better[rows, labels]).mean() > np.log(p[rows, labels]).mean()
    assert better.sum(axis=1) == pytest.approx(1) and (better.argmax(axis=1) == p.argmax(axis=1)).all()


def test_chance_rare_labels_and_frequent_words_accuse_nobody():
    """A model that knows nothing; one text of a label; five texts of ten with a word of their own, among so many."""
    texts, labels = labelled(300)
    guessed = [str(x) for x in np.random.default_rng(0).integers(2, size=len(texts))]
    assert len(of_kind(audit(texts, guessed), "label-error")) <= 3
    rare = ["rare" if i == 5 else label for i, label in enumerate(labels)]
    found = audit([f"{text} the" for text in texts], rare)
    assert of_kind(found, "label-error") == of_kind(found, "label-leak") == []
    rng = np.random.default_rng(0)
    few = [" ".join(map(str, rng.integers(0, 40, 12))) for _ in range(12)]
    assert of_kind(audit(few, ["x", "y"] * 6), "label-leak") == []
    with pytest.raises(DataError, match="no examples to audit"):
        audit([" "], ["x"])

"""Spans counted as conlleval does, on cases worked by hand; scores, intervals and baselines of tags."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.for_each import for_each

from glassformer.evaluate.baselines import tag_baselines
from glassformer.evaluate.scores import tag_counts, tag_scores
from glassformer.text.words import spans_of, tag_names


def spans(tags: str) -> list[tuple[int, int, str]]:
    return [tuple(span) for span in spans_of(tags.split())]  # pyright: ignore[reportReturnType]


@for_each(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-X I-X O", [(0, 2, "X")]),
        ("B-X B-X", [(0, 1, "X"), (1, 2, "X")]),
        ("I-X I-X O", [(0, 2, "X")]),  # conlleval: I- at the beginning begins a span
        ("O I-X", [(1, 2, "X")]),  # and after O
        ("B-X I-Y I-Y", [(0, 1, "X"), (1, 3, "Y")]),  # and after another label
        ("I-X I-Y", [(0, 1, "X"), (1, 2, "Y")]),
        ("B-X I-X B-X I-X I-Y O I-Y", [(0, 2, "X"), (2, 4, "X"), (4, 5, "Y"), (6, 7, "Y")]),
        ("B-X-Y I-X-Y", [(0, 2, "X-Y")]),  # the label is all after the first hyphen
        ("NOUN VERB", []),
    ],
)
def test_spans_are_those_of_conlleval(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert spans(tags) == expected


def test_the_names_of_tags_are_whole() -> None:
    assert tag_names(["B-X", "O", "I-Y"]) == ["O", "B-X", "I-X", "B-Y", "I-Y"]
    assert tag_names(["VERB", "NOUN"]) == ["NOUN", "VERB"]


def test_scores_are_those_counted_by_hand() -> None:
    truth = [t.split() for t in ("B-X I-X O B-Y", "O O", "B-X O")]
    found = [t.split() for t in ("B-X I-X O O", "O B-Y", "I-X O")]
    assert [tuple(row) for row in tag_counts(truth, found).tolist()] == [
        (1, 0, 1, 3, 4),
        (0, 1, 0, 1, 2),
        (1, 0, 0, 1, 2),  # I-X after nothing is the same span, and another tag
    ]
    scores = tag_scores(truth, found, plain=False)
    assert scores["span_precision"] == scores["span_recall"] == scores["span_f1"] == pytest.approx(2 / 3)
    assert scores["tag_accuracy"] == 5 / 8 and (scores["n"], scores["n_words"]) == (3, 8)
    assert {row["label"]: (row["precision"], row["recall"], row["support"]) for row in scores["per_label"]} == {
        "X": (1.0, 1.0, 2),
        "Y": (0.0, 0.0, 1),
    }
    assert scores["macro_f1"] == 0.5
    low, high = scores["span_f1_ci95"]
    assert low <= scores["span_f1"] <= high


def test_plain_tags_have_accuracy_and_macro_f1() -> None:
    scores = tag_scores([["N", "V", "N"]], [["N", "N", "N"]], plain=True)
    assert scores["headline"] == "tag_accuracy" and "span_f1" not in scores
    assert scores["tag_accuracy"] == pytest.approx(2 / 3) and scores["macro_f1"] == pytest.approx(0.4)
    assert tag_scores([["O"]], [["O"]], plain=False)["span_f1"] == 0.0


def made(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """A word after "to" is a place, and the same word elsewhere is none."""
    rng = np.random.default_rng(seed)
    words = [[str(word) for word in rng.choice(["to", "oslo", "rome", "we", "go"], 8)] for _ in range(n)]
    tags = [
        ["B-LOC" if before == "to" and word != "to" else "O" for before, word in zip(["", *row], row, strict=False)]
        for row in words
    ]
    return words, tags


def test_the_window_sees_what_the_word_alone_does_not() -> None:
    train, test = made(80, 0), made(20, 1)
    baselines = tag_baselines(*train, *test, plain=False)
    assert baselines["frequent"]["span_f1"] == 0.0 and baselines["window"]["span_f1"] > 0.95
    assert all(row["settings"] and "span_f1_ci95" in row for row in baselines.values())
    assert baselines == tag_baselines(*train, *test, plain=False)


def test_a_single_sentence_of_one_tag_has_no_window() -> None:
    assert tag_baselines([["a"]], [["O"]], [["a", "b"]], [["O", "O"]], plain=False).keys() == {"frequent"}
    assert "window" in tag_baselines([["a", "b"]], [["O", "B-X"]], [["a"]], [["O"]], plain=False)

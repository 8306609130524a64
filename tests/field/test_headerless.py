"""A table without a header whose first values are usual names of columns keeps its first row; headers stay headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.reading import read, reviews, table

from glassformer.data.datasets.columns import LABEL, SOURCE, TARGET, TEXT, read_table
from glassformer.data.diagnostics import Diagnostics

FORMS = [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")]
NAMES = sorted({name for spec in (TEXT, LABEL, SOURCE, TARGET) for name in spec.usual})
SPECS = {"classify": (TEXT, LABEL), "translate": (SOURCE, TARGET), "pretrain": (TEXT,)}


def n_read(folder: Path, task: str, rows: list[tuple[str, ...]], name: str, delimiter: str, *header: str) -> int:
    (folder / name).write_text(table(rows, header or None, delimiter), encoding="utf-8")
    diagnostics = Diagnostics()
    found = read_table(folder / name, SPECS[task], diagnostics)
    assert not diagnostics.issues
    return len(found.text)


@pytest.mark.parametrize(("name", "delimiter"), FORMS)
def test_the_first_row_is_kept(tmp_path: Path, name: str, delimiter: str) -> None:
    words = [(f"word{i}", f"Wort{i}") for i in range(8)]
    lost = []
    for first in NAMES:
        rows = reviews(first, "other", n=8)
        tables = {
            "text, label": ("classify", rows),
            "label, text": ("classify", [row[::-1] for row in rows]),
            "id, text, label": ("classify", [(str(i), *row) for i, row in enumerate(rows)]),
            "text alone": ("pretrain", rows),
            "capital": ("classify", [(text, label.title()) for text, label in rows]),
            "a word": (
                "classify",
                [(first, "pos"), *((text, ("pos", "neg")[i % 2]) for i, (text, _) in enumerate(words))],
            ),
            "a source": ("translate", [(first, "von"), *words]),
            "a target": ("translate", [("von", first), *words]),
            "the same word": ("translate", [(first, first), *words]),
        }
        for form, (task, content) in tables.items():
            if n_read(tmp_path, task, content, name, delimiter) != len(content):
                lost.append((first, form))
    assert lost == []


@pytest.mark.parametrize(("name", "delimiter"), FORMS)
def test_headers_are_headers(tmp_path: Path, name: str, delimiter: str) -> None:
    rows, pairs = reviews("pos", "neg", n=6), [(f"a b {i}", f"c d {i}") for i in range(6)]
    examples = []
    for text in TEXT.usual:
        examples += [("classify", rows, (text, label)) for label in LABEL.usual]
        examples += [
            ("pretrain", [row[:1] for row in rows], (text,)),
            ("classify", reviews("y", "n", n=6), (text, "y")),
        ]
    for source in SOURCE.usual:
        examples += [("translate", pairs, (source, target)) for target in TARGET.usual]
    others = [
        ("en", "de"),
        ("English", "French"),
        ("text", "translation"),
        ("de_text", "target"),
        ("sentence", "output"),
        ("original text", "translated text"),
        ("English sentence", "German"),
    ]
    examples += [("translate", pairs, header) for header in others]
    examples += [("classify", rows, ("meinung", "urteil")), ("classify", reviews("spam", "ham"), ("message", "spam"))]
    taken = [
        header for task, body, header in examples if n_read(tmp_path, task, body, name, delimiter, *header) != len(body)
    ]
    assert taken == []


def test_labels_of_y_and_n(tmp_path: Path) -> None:
    rows = reviews("y", "y", "n")
    found = read(tmp_path, table(rows))
    assert found.examples == sorted(rows) and found.noted("there is no header line")


def test_one_example_a_class_has_no_label_that_recurs(tmp_path: Path) -> None:
    rows = [(f"the shoe {i} was superb and bright", name) for i, name in enumerate(["topic", "b", "c", "d"])]
    assert n_read(tmp_path, "classify", rows, "a.csv", ",") == 4


@pytest.mark.parametrize(
    "header", [None, ("id", "src", "tgt"), ("id", "en", "de"), ("key", "english text", "german text")]
)
@pytest.mark.parametrize("form", ["{}", "s{:03}", "{:08x}-aaaa"])
def test_identifiers_are_no_sentences(tmp_path: Path, header: tuple[str, ...] | None, form: str) -> None:
    pairs = [(f"the shoe {i} was red", f"der Schuh {i} war rot") for i in range(24)]
    rows = [(form.format(i), *pair) for i, pair in enumerate(pairs)]
    found = read(tmp_path, table(rows, header, "\t"), "a.tsv", "translate")
    assert set(pairs) <= set(found.examples) and len(found.examples) <= 25


def test_columns_between_and_behind(tmp_path: Path) -> None:
    pairs = [(f"the shoe {i} was red", f"der Schuh {i} war rot") for i in range(24)]
    between = [(str(1000 + i), a, "de", str(2000 + i), b) for i, (a, b) in enumerate(pairs)]
    behind = [(a, b, f"CC-BY 2.0 Attribution: a long line about number {i}") for i, (a, b) in enumerate(pairs)]
    for rows in (between, behind):
        assert read(tmp_path, table(rows, None, "\t"), "a.tsv", "translate").examples == sorted(pairs)


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("pretrain", [("Hello",), *((f"good day {i}",) for i in range(20)), ("Hello",), ("Hello",), ("so long",)]),
        ("pretrain", [("Hello", "x"), *((f"good day {i}", "y") for i in range(20)), ("Hello", "x")]),
        ("pretrain", [("Hello",), *((f"good day {i}",) for i in range(1200)), ("Hello",), ("Hello",)]),
        ("classify", [("Thanks", "bye"), *((f"good day {i}", "hi") for i in range(20)), ("Thanks", "bye")]),
        ("classify", [("Thanks", "bye"), *reviews("bye", "hi", n=20), ("Thanks", "bye")]),
        ("classify", [("Good", "pos"), ("Bad", "neg")] * 20),
        ("classify", [("Good", "pos"), ("Bad", "neg"), ("Fair", "neutral")] * 20),
    ],
)
def test_a_first_row_that_recurs_is_an_example(tmp_path: Path, task: str, rows: list[tuple[str, ...]]) -> None:
    assert n_read(tmp_path, task, rows, "a.csv", ",") == len(rows)


def test_unusual_names_that_recur_head_files_put_together(tmp_path: Path) -> None:
    rows, header = reviews("pos", "neg", n=24), ("Kommentar", "Klasse")
    assert n_read(tmp_path, "classify", [*rows[:12], header, *rows[12:]], "a.csv", ",", *header) == 24

"""`cat a.csv b.csv`: the headers and byte order marks of the other files are no examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.reading import read, reviews, table

ROWS, HEADER = reviews("pos", "neg"), ("text", "label")
PAIRS = [(f"the shoe {i} was red", f"der Schuh {i} war rot") for i in range(24)]


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
@pytest.mark.parametrize("second", [HEADER, ("Text", "LABEL"), (" text ", "label"), ("\u200btext", "label")])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_they_are_left_out_and_counted(
    tmp_path: Path, name: str, delimiter: str, second: tuple[str, str], mark: str
) -> None:
    headers = [HEADER, second, HEADER]
    content = mark + mark.join(table(ROWS[i::3], header, delimiter) for i, header in enumerate(headers))
    found = read(tmp_path, content, name)
    assert found.examples == sorted(ROWS)
    assert found.report.counts["repeated headers left out"] == 2
    assert found.report.counts.get("byte order marks", 0) == 3 * bool(mark)
    assert found.noted("2 rows are headers again and left out")


@pytest.mark.parametrize("first", [HEADER, None])
def test_a_header_of_other_names_is_one_too(tmp_path: Path, first: tuple[str, str] | None) -> None:
    found = read(tmp_path, table(ROWS[:12], first) + table(ROWS[12:], ("review", "sentiment")))
    assert found.classes == {"pos", "neg"} and len(found.examples) == 24
    assert found.report.counts["repeated headers left out"] == 1


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    found = read(tmp_path, table(ROWS[:12], HEADER) + table([row[::-1] for row in ROWS[12:]], HEADER[::-1]))
    assert "a.csv:14: a second header has the columns in another order" in found.message


@pytest.mark.parametrize(
    ("task", "header", "rows"),
    [("translate", ("en", "de"), PAIRS), ("translate", ("source", "target"), PAIRS), ("pretrain", HEADER, ROWS)],
)
def test_every_task(tmp_path: Path, task: str, header: tuple[str, str], rows: list[tuple[str, str]]) -> None:
    found = read(tmp_path, (table(rows[:12], header, "\t") + "\ufeff" + table(rows[12:], header, "\t")), "a.tsv", task)
    assert len(found.examples) == 24 and not any("\ufeff" in text for text, _ in found.examples)


def test_marks_in_json_lines_and_in_text(tmp_path: Path) -> None:
    lines = ['{{"text": "{}", "label": "{}"}}'.format(*row) for row in ROWS]
    found = read(tmp_path, "\ufeff" + "\n".join(lines[:12]) + "\n\ufeff" + "\n".join(lines[12:]), "a.jsonl")
    assert found.examples == sorted(ROWS) and found.report.counts["byte order marks"] == 2
    texts = read(tmp_path, "\ufeffone line\n\ufeff\ufefftwo lines\nthree lines\n", "a.txt", "pretrain")
    assert [text for text, _ in texts.examples] == ["one line", "three lines", "two lines"]
    running = read(tmp_path, "\ufeffone line\n\ufefftwo lines\n" * 20, "a.txt", "lm")
    assert "\ufeff" not in "".join(text for text, _ in running.examples)


def test_a_header_that_became_json(tmp_path: Path) -> None:
    rows = [{"text": text, "label": label} for text, label in reviews("pos", "neg")]
    rows[7:7] = [{"text": "text", "label": "label"}, {"text": "Text", "label": "LABEL "}]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")
    assert found.examples == sorted(reviews("pos", "neg"))
    assert found.report.counts["repeated headers left out"] == 2

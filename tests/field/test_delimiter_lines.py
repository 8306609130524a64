"""Excel's first line `sep=;` names the delimiter: it is obeyed and is neither header nor example."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.reading import read, reviews, table

ROWS, HEADER = reviews("pos", "neg"), ("text", "label")
LINES = ["sep=;", "SEP=;", '"sep=;"', "sep=;;", "sep=,", "sep=\t", "sep=\\t", "sep=|", "\ufeffsep=;", '\ufeff"sep=;"']


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_it_is_obeyed_and_left_out(tmp_path: Path, name: str, line: str, end: str) -> None:
    delimiter = line.lstrip('\ufeff"')[4].replace("\\", "\t")
    content = line + end + table(ROWS, HEADER, delimiter).replace("\n", end)
    found = read(tmp_path, content, name)
    assert found.examples == sorted(ROWS)
    assert found.noted("as its first line says") and found.report.counts["lines that name the delimiter"] == 1


@pytest.mark.parametrize("columns", [1, 3])
def test_other_columns_and_no_header(tmp_path: Path, columns: int) -> None:
    rows = [(f"n{i}", *row)[-columns:] if columns == 3 else row[:1] for i, row in enumerate(ROWS)]
    header = ("id", *HEADER) if columns == 3 else ("text",)
    task = "classify" if columns == 3 else "pretrain"
    found = read(tmp_path, "sep=;\n" + table(rows, header, ";"), task=task)
    assert len(found.examples) == len(ROWS)
    flags = {"text_column": "2", "label_column": "3"} if columns == 3 else {}
    bare = read(tmp_path, "\nsep=;\n" + table(rows, None, ";"), task=task, **flags)
    assert bare.examples == found.examples


def test_one_further_down_is_no_row(tmp_path: Path) -> None:
    parts = ["sep=;\n" + table(ROWS[i::3], HEADER, ";") for i in range(3)]
    found = read(tmp_path, "\ufeff".join(parts))
    assert "a.csv:11: the label is empty" in found.message

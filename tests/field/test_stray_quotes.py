"""A text that begins with a quote, and one below that ends with one: the rows between are not lost in silence."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.helpers.reading import read, reviews, table

from glassformer.cli.main import main
from glassformer.config import DataConfig, FilesConfig
from glassformer.data.datasets.local_files import load_test
from glassformer.errors import DataError
from glassformer.tasks import TASKS

ROWS, HEADER = reviews("pos", "neg"), ("text", "label")
PAIRS = [(f"the shoe {i} was red", f"der Schuh {i} war rot") for i in range(24)]


def stray(lines: list[str], column: int, begin: int, end: int, delimiter: str) -> str:
    """Put a quote before a cell of one line and behind that cell of another."""
    cells = [line.split(delimiter) for line in lines]
    cells[begin][column] = '"' + cells[begin][column]
    cells[end][column] += '"'
    return "".join(delimiter.join(row) + "\n" for row in cells)


def written(rows: list[tuple[str, ...]], quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=quoting).writerows(rows)
    return file.getvalue()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(("begin", "end"), [(5, 12), (5, 6), (0, 9), (1, 24), (23, 24)])
def test_rows_that_a_quote_joins_are_refused(tmp_path: Path, delimiter: str, begin: int, end: int) -> None:
    lines = table(ROWS, HEADER, delimiter).splitlines()
    found = read(tmp_path, stray(lines, 0, begin, end, delimiter))
    issues = [issue for issue in found.report.errors if issue.kind == "quote"]
    assert [issue.line for issue in issues] == [begin + 1]
    assert f"joins {end - begin + 1} rows" in issues[0].message and f"to {end + 1} " in issues[0].message
    assert found.report.counts["rows joined by a stray quote"] == end - begin + 1
    assert found.noted("over several lines", f"lines {begin + 1} to {end + 1}")


@pytest.mark.parametrize("form", ["label", "label first", "three columns", "ends with the file"])
def test_wherever_the_quote_stands(tmp_path: Path, form: str) -> None:
    lines, column = table(ROWS, HEADER).splitlines(), 0
    if form == "label":
        column = 1
    elif form == "label first":
        lines, column = table([row[::-1] for row in ROWS], HEADER[::-1]).splitlines(), 1
    elif form == "three columns":
        lines, column = table([(f"n{i}", *row) for i, row in enumerate(ROWS)], ("id", *HEADER)).splitlines(), 1
    content = stray(lines, column, 5, 12, ",")
    if form == "ends with the file":
        content = "\n".join([*lines[:5], '"' + lines[5], *lines[6:]]) + '"\n'
    found = read(tmp_path, content)
    assert any(issue.kind == "quote" and issue.line == 6 for issue in found.report.errors)


@pytest.mark.parametrize("column", [0, 1])
def test_pairs_of_sentences_and_test_files(tmp_path: Path, column: int) -> None:
    lines = table(PAIRS, ("source", "target")).splitlines()
    found = read(tmp_path, stray(lines, column, 5, 12, ","), task="translate")
    assert [issue.line for issue in found.report.errors] == [6]
    two = read(tmp_path, stray(lines, column, 5, 6, ","), task="translate")
    assert two.noted("may be rows that a stray quote joins", "lines 6 to 7")
    with pytest.raises(DataError, match=r"a\.csv:6: a stray quote joins 8 rows"):
        (tmp_path / "a.csv").write_text(stray(lines, column, 5, 12, ","), encoding="utf-8")
        load_test(TASKS["translate"].schema, DataConfig(files=FilesConfig(test_file=str(tmp_path / "a.csv"))))


LEGITIMATE = {
    "prose": "Dear John,\nthe shoes came, both, thank you\nMary",
    "answers": "Shall I buy it? Well, pos\nor neg, who knows, neg\nor neither",
    "code": "def f(a,b):\n    return g(a,b)",
    "a table": "name,age\nAnna,3\nBob,4\n",
    "a table of labels": "a,pos\nb,neg\nc,pos",
}


@pytest.mark.parametrize("text", LEGITIMATE.values(), ids=LEGITIMATE)
def test_a_text_of_several_lines_is_a_text(tmp_path: Path, text: str) -> None:
    rows = [(f"{i} {text}", label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, written([HEADER, *rows]))
    assert found.examples == sorted(rows)
    assert found.noted("24 quoted fields go over several lines")
    pairs = read(
        tmp_path,
        written([("src", "tgt"), *[(text, f"call {i}") for i, (text, _) in enumerate(rows)]]),
        task="translate",
    )
    assert len(pairs.examples) == 24


def test_a_table_with_all_fields_in_quotes_has_no_stray_one(tmp_path: Path) -> None:
    rows = [*ROWS, ("a,pos\nb,neg\nc", "pos")]
    refused = read(tmp_path, written([HEADER, *rows]))
    assert "put every field of the file in quotes" in refused.message
    assert read(tmp_path, written([HEADER, *rows], csv.QUOTE_ALL)).examples == sorted(rows)


@pytest.mark.parametrize("header", ['"text","label"', '"text";"label"', '"id","text","label"'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_header_in_quotes_says_nothing_of_the_rows(tmp_path: Path, header: str, end: str) -> None:
    delimiter = ";" if ";" in header else ","
    rows = [(f"n{i}", *row) for i, row in enumerate(ROWS)] if "id" in header else ROWS
    lines = [header, *table(rows, None, delimiter).splitlines()]
    content = stray(lines, lines[0].count(delimiter) - 1, 5, 12, delimiter).replace("\n", end)
    found = read(tmp_path, content)
    assert [issue.line for issue in found.report.errors if issue.kind == "quote"] == [6]
    # As R and macros of Excel write it: strings in quotes, numbers not.
    numbers = [f'"{text}"{delimiter}{i % 2}' for i, (text, _) in enumerate(ROWS)]
    assert len(read(tmp_path, "\n".join(['"text"' + delimiter + '"label"', *numbers])).examples) == 24


@pytest.mark.parametrize("space", [" ", "  "])
def test_quotes_behind_spaces(tmp_path: Path, space: str) -> None:
    rows = [f'{text},{space}"{label}"' for text, label in ROWS]
    found = read(tmp_path, "\n".join([f"text,{space}label", *rows]))
    assert found.examples == sorted(ROWS) and found.noted("spaces before quoted fields")
    rows = [f'{label},{space}"{text}, yes"' for text, label in ROWS]
    found = read(tmp_path, "\n".join([f"label,{space}text", *rows]))
    assert found.examples == sorted((f"{text}, yes", label) for text, label in ROWS)
    prose = [(f'{i} He said, "no", and, "yes"', label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, written([HEADER, *prose]))
    assert found.examples == sorted(prose) and not found.noted("spaces before")


def test_the_command_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(stray(table(ROWS, HEADER).splitlines(), 0, 5, 12, ","), encoding="utf-8")
    assert main(["data", "check", "classify", "--train-file", str(path), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"] and found["counts"]["rows joined by a stray quote"] == 8
    assert found["errors"][0]["line"] == 6


@pytest.mark.parametrize(("n_lines", "n_long", "is_noted"), [(31, 1, True), (2, 1, True), (3, 20, False)])
def test_a_rare_text_of_several_lines_alone_in_its_column(
    tmp_path: Path, n_lines: int, n_long: int, is_noted: bool
) -> None:
    long = [("\n".join(f"line {i} of text {k}" for i in range(n_lines)),) for k in range(n_long)]
    rows = [("text",), *((f"a text of one line {i}",) for i in range(30)), *long]
    found = read(tmp_path, written(rows), task="pretrain")
    assert found.noted(f"{n_long} of the fields", "may be rows that a stray quote joins", "lines 32 to ") == is_noted
    assert found.report.counts.get("texts whose lines look like rows", 0) == is_noted


@pytest.mark.parametrize(("begin", "end"), [(5, 12), (5, 6), (1, 24)])
def test_rows_of_numbers_that_a_quote_joins_are_refused(tmp_path: Path, begin: int, end: int) -> None:
    lines = table([(f"the shoe {i} was good", f"{i}.5") for i in range(24)], ("body", "stars")).splitlines()
    found = read(tmp_path, stray(lines, 0, begin, end, ","), task="regress")
    assert [issue.line for issue in found.report.errors if issue.kind == "quote"] == [begin + 1]

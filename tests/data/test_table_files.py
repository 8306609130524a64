"""Tables read in every format and written in two: what goes in comes out, with the answers behind it."""

import csv
import gzip
import itertools
import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import FilesConfig
from glassformer.data.answered_table import InputTable, TableWriter, format_for, scan_table
from glassformer.data.datasets.columns import TEXT
from glassformer.errors import DataError, UsageError

FORMATS = [".csv", ".jsonl", ".csv.gz", ".jsonl.gz"]
OUR_CSV = {"delimiter": ",", "quotes": "yes"}
"""How a CSV is written, for fields that look like rows of their own."""
Cells = list[list[str]]

CELLS = ["", " ", '"', "sep=;", "é 語 👍", 'a,"b"', "'two\nlines'", ";\t", '\n\n""', ",", "x,y\na,b\n", "| ;", '"a"']
"""What a format may take for its own marks."""
TABLE = [["text", "x a", "x_é"], *([f"some words {a}", a, b] for a, b in itertools.pairwise(CELLS))]


def scanned(path: Path, column: str | None = "text", **form: str) -> InputTable:
    return scan_table(path, (replace(TEXT, requested=column),), FilesConfig(**form))


def write(table: InputTable, path: Path, answers: Sequence[dict[str, Any]]) -> None:
    path.unlink(missing_ok=True)
    with TableWriter(path, path, table) as writer:
        rows = [row | answer for (_, row), answer in zip(table.rows(), answers, strict=True)]
        for start in range(0, len(rows), 256):
            writer.append(rows[start : start + 256])


def as_cells(table: InputTable) -> Cells:
    """Return the header and the rows."""
    return [list(table.names), *([row.get(name, "") for name in table.names] for _, row in table.rows())]


@pytest.mark.parametrize("second", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
def test_every_pair_of_formats_keeps_every_field(tmp_path, first, second):
    (names, *rows), source = TABLE, tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows), "utf-8")
    answers = [{"label": f"l{i}", "note": row[-1]} for i, row in enumerate(rows)]
    expected = [[*names, "label", "note"], *([*r, *a.values()] for r, a in zip(rows, answers, strict=True))]
    write(scanned(source), middle := tmp_path / f"b{first}", answers)
    once = scanned(middle, **OUR_CSV)
    assert as_cells(once) == expected
    assert [text for text, _ in once.rows()] == [row[0] for row in rows]
    write(once, last := tmp_path / f"c{second}", [{"score": 0.5}] * once.n_rows)
    twice = as_cells(scanned(last, **OUR_CSV))
    assert [row[:-1] for row in twice] == expected
    assert {str(row[-1]) for row in twice[1:]} == {"0.5"}


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("delimiter", [";", ",", "|"])
def test_a_csv_has_commas(tmp_path, suffix, delimiter):
    data = "\ufeff" + f"sep={delimiter}\n" * (delimiter == "|") + f'id{delimiter}text\r\n1{delimiter}"a, b; c|d"\r\n'
    (tmp_path / "a.csv").write_bytes(data.encode())
    out = tmp_path / f"b{suffix}"
    write(scanned(tmp_path / "a.csv"), out, [{"label, or class": "pos"}])
    written = gzip.decompress(out.read_bytes()) if suffix == ".csv.gz" else out.read_bytes()
    assert written == b'id,text,"label, or class"\n1,"a, b; c|d",pos\n'


def test_a_carriage_return_stays_in_its_field(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a\\rb", "x": "c\\r\\nd"}\n', "utf-8")
    write(scanned(tmp_path / "a.jsonl"), tmp_path / "b.csv", [{"label": "pos"}])
    with open(tmp_path / "b.csv", newline="", encoding="utf-8") as file:
        assert [*csv.reader(file)] == [["text", "x", "label"], ["a\rb", "c\r\nd", "pos"]]


def test_a_table_without_a_header_gets_none(tmp_path):
    (tmp_path / "a.csv").write_text("1,a good film and more\n2,a bad film and more\n", "utf-8")
    table = scanned(tmp_path / "a.csv", "2")
    assert not table.columns.has_header and table.n_rows == 2
    write(table, tmp_path / "b.csv", [{"label": "x"}, {"label": "y"}])
    assert (tmp_path / "b.csv").read_text("utf-8") == "1,a good film and more,x\n2,a bad film and more,y\n"
    write(table, tmp_path / "b.jsonl", [{"label": "x"}, {"label": "y"}])
    first = json.loads((tmp_path / "b.jsonl").read_text("utf-8").splitlines()[0])
    assert first == {"column_1": "1", "column_2": "a good film and more", "label": "x"}


def test_json_keeps_its_keys_and_nested_values(tmp_path):
    rows = [{"text": "a", "n": 1, "deep": {"b": [1, 2.5, None]}, "\u2028": True}, {"text": "b", "other": "\ud800"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl:2: in the column 'other' the text holds half a surrogate pair"):
        scanned(tmp_path / "a.jsonl")
    rows[1]["other"] = "o"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    write(scanned(tmp_path / "a.jsonl"), tmp_path / "b.jsonl", [{"label": "x"}] * 2)
    read = [json.loads(line) for line in (tmp_path / "b.jsonl").read_bytes().split(b"\n")[:-1]]
    assert read == [{**row, "label": "x"} for row in rows]
    write(scanned(tmp_path / "a.jsonl"), tmp_path / "b.csv", [{"label": "x"}] * 2)
    header, first, second = as_cells(scanned(tmp_path / "b.csv"))
    assert header == ["text", "n", "deep", "\u2028", "other", "label"]
    assert first == ["a", "1", '{"b": [1, 2.5, null]}', "true", "", "x"]
    assert second == ["b", "", "", "", "o", "x"]


MALFORMED = {
    "quote.csv": (b'text,id\n"a,1\n', "quote.csv:2: a quote is not closed"),
    "columns.csv": (b"text,id\na,1\nb\n", "columns.csv:3: 2 columns are expected, but there are 1"),
    "encoding.tsv": (b"text\tid\na\t1\n\xff\t2\n", "encoding.tsv:3: byte 1 of the line"),
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n', "broken.jsonl:2: this is not JSON"),
    "null.jsonl": (b'{"text": "a"}\n{"text": null}\n{"id": 1}\n', "null.jsonl:2: 'text' is null (and 1 more problem)"),
    "cut.csv.gz": (gzip.compress(b"text,id\n" + b"a word,1\n" * 2000, mtime=0)[:-9], "the gzip file is damaged or cut"),
    "empty.csv": (b"text,id\n", "there is no row in this file"),
    "twice.csv": (b"text,text\na,b\n", "2 columns have one name ('text', 'text')"),
    "other.csv": (b"text,id,id\na,1,2\n", "several columns have one name"),
}


@for_each("name", MALFORMED)
def test_what_is_malformed_is_refused_with_its_place(tmp_path, name):
    data, message = MALFORMED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as error:
        scanned(tmp_path / name)
    assert message in error.value.message


def test_what_is_no_file_and_other_names_of_outputs_are_refused(tmp_path):
    for path, message in ((tmp_path / "gone.csv", "there is no such file"), (tmp_path, "this is a folder")):
        with pytest.raises(DataError, match=message) as error:
            scanned(path)
        assert error.value.hint == "check the path"
    for name in ("a.xlsx", "a", "a.parquet", "a.tsv", "a.gz"):
        with pytest.raises(UsageError, match="the name of a table to write ends in"):
            format_for(Path(name))


def test_memory_does_not_grow_with_the_table(tmp_path):
    lines = (f"{i},{'some words ' * 40}{i}\n" for i in range(20_000))
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(lines), "utf-8")  # 3.6 MB
    out = tmp_path / "b.csv"
    tracemalloc.start()
    table = scanned(tmp_path / "a.csv")
    rows, n = table.rows(), 0
    with TableWriter(out, out, table) as writer:
        while some := [row | {"label": "x"} for _, row in itertools.islice(rows, 256)]:
            writer.append(some)
            n += len(some)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n == 20_000 and out.stat().st_size > 0
    assert peak < 8_000_000

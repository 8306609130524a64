"""Other forms of tables: a field named translation, old line ends, equal headers, quotes in a TSV, few examples."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.helpers.reading import read, reviews, table

from glassformer.cli.main import main
from glassformer.config import DataConfig, FilesConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError
from glassformer.tasks import TASKS

ROWS, HEADER = reviews("pos", "neg"), ("text", "label")
PAIRS = {(f"ein Text {i}", f"un texte {i}") for i in range(24)}


def nested(of: tuple[str, ...] = ()) -> str:
    inner = [{"de": de, "fr": fr} for de, fr in sorted(PAIRS)]
    own = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    rows = [{key: row[key] for key in of} | {"translation": t} for row, t in zip(own, inner, strict=True)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("requested", [{}, {"text_column": "text", "label_column": "label"}, {"label_column": "label"}])
def test_a_classifier_reads_the_fields_beside_a_translation(tmp_path: Path, requested: dict[str, str]) -> None:
    assert read(tmp_path, nested(of=HEADER), "a.jsonl", **requested).examples == sorted(ROWS)


def test_who_reads_the_inner_fields(tmp_path: Path) -> None:
    assert set(read(tmp_path, nested(of=HEADER), "a.jsonl", "translate").examples) == PAIRS
    assert set(read(tmp_path, nested(), "a.jsonl", "translate").examples) == PAIRS
    backwards = read(tmp_path, nested(of=HEADER), "a.jsonl", "translate", src_column="fr", tgt_column="de")
    assert set(backwards.examples) == {pair[::-1] for pair in PAIRS}
    assert [text for text, _ in read(tmp_path, nested(of=HEADER), "a.jsonl", "pretrain").examples] == sorted(
        text for text, _ in ROWS
    )
    outside = read(tmp_path, nested(of=HEADER), "a.jsonl", "translate", src_column="text", tgt_column="label")
    assert outside.examples == sorted(ROWS)
    assert "'translation' is not a string" in read(tmp_path, nested(of=("label",)), "a.jsonl").message


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("n", [24, 40_000])
def test_lines_that_end_in_carriage_returns_alone(tmp_path: Path, name: str, n: int) -> None:
    content = table(reviews("pos", "neg", n=n), HEADER, "\t" if name == "a.tsv" else ",").replace("\n", "\r")
    assert "carriage returns" in read(tmp_path, content, name).message


def test_a_carriage_return_in_a_row(tmp_path: Path) -> None:
    found = read(tmp_path, "text,label\n" + table(ROWS).replace("\n", "\r"))
    assert "a.csv:2: a carriage return stands outside quotes" in found.message


@pytest.mark.parametrize("header", [("text", "text", "label"), ("label", "text", "label"), ("Text", "text", "TEXT")])
def test_one_name_for_two_columns(tmp_path: Path, header: tuple[str, ...]) -> None:
    rows = [("row", *row) for row in ROWS]
    requested = {"text_column": "tExt", "label_column": "tExT"} if "TEXT" in header else {}
    assert "have one name" in read(tmp_path, table(rows, header), **requested).message
    assert len(read(tmp_path, table(rows, ("x", "text", "label"))).examples) == 24


def test_one_name_for_two_json_fields(tmp_path: Path) -> None:
    content = "".join('{{"text": "{}", "label": "pos", "label": "{}"}}\n'.format(*row) for row in ROWS)
    assert "the field 'label' stands twice" in read(tmp_path, content, "a.jsonl").message


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_quotes_of_a_csv_writer_in_a_tsv(tmp_path: Path, quoting: int) -> None:
    rows = [(f'he said "shoe {i}" and "more"', label) for i, (_, label) in enumerate(ROWS)]
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator="\n", quoting=quoting).writerows([HEADER, *rows])
    found = read(tmp_path, file.getvalue(), "a.tsv")
    assert found.examples == sorted(rows)
    assert found.noted("quotes around fields are read as those of a CSV")


@pytest.mark.parametrize("text", ['"the shoe {}"', '"the" shoe and "{}"', '"shoe {}', 'shoe {}"', 'a 5" shoe {}'])
def test_other_quotes_in_a_tsv_are_text(tmp_path: Path, text: str) -> None:
    rows = [(text.format(i), label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, table(rows, HEADER, "\t"), "a.tsv")
    assert found.examples == sorted(rows)
    assert found.noted("24 fields begin and end with a quote") == (text[0] == text[-1] == '"')


def test_one_example_a_class(tmp_path: Path) -> None:
    rows = [(text, f"c{i:03}") for i, (text, _) in enumerate(reviews("", n=30))]
    refused = read(tmp_path, table(rows, HEADER))
    assert "each of 30 labels has a single text" in refused.message and "--valid-file" in refused.message
    valid = tmp_path / "v.csv"
    valid.write_text(table([("other", "c001")], HEADER), encoding="utf-8")
    assert len(read(tmp_path, table(rows, HEADER), label_column="label", valid_file=str(valid)).examples) == 31


def test_a_hint_quotes_what_the_shell_would_split(tmp_path: Path) -> None:
    found = read(tmp_path, table(ROWS, ("it's text", "label")), text_column="it's tex")
    assert """--text-column 'it'"'"'s text'""" in found.message


@pytest.mark.parametrize("header", [("Text", "text", "label"), ("text", "Label", "label")])
def test_names_equal_but_for_case(tmp_path: Path, header: tuple[str, ...]) -> None:
    content = table([("row", *row) if header[0] == "Text" else (*row, row[1]) for row in ROWS], header)
    assert "have one name" in read(tmp_path, content).message
    exact = read(tmp_path, content, text_column="text", label_column="label")
    assert exact.examples == sorted(ROWS)


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_a_folder_or_device_is_called_so(tmp_path: Path, task: str) -> None:
    schema = TASKS[task].schema
    (tmp_path / "folder").mkdir()
    for path, message in ((str(tmp_path / "folder"), "this is a folder"), ("/dev/null", "this is a device")):
        if Path(path).exists():
            with pytest.raises(DataError, match=message):
                load_text_data(schema, DataConfig(files=FilesConfig(train_file=path)))


@pytest.mark.parametrize(("name", "task"), [("a.txt", "pretrain"), ("a.txt", "lm"), ("a.jsonl", "classify")])
@pytest.mark.parametrize("final", ["\r", "", "\r\n"])
def test_carriage_returns_alone_in_other_files(tmp_path: Path, name: str, task: str, final: str) -> None:
    lines = ['{{"text": "{}", "label": "{}"}}'.format(*row) for row in ROWS]
    found = read(tmp_path, "\r".join(lines) + final, name, task)
    assert "lines end in carriage returns alone" in found.message
    assert "CRLF line ends" not in found.report.counts


def test_parallel_files_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / "a.src", tmp_path / "a.tgt"]
    files = FilesConfig(src_file=str(paths[0]), tgt_file=str(paths[1]))
    for content, message in (("a b\n" * 20, "1 different text"), ("a\rb\rc\r", "carriage returns alone")):
        for path in paths:
            path.write_bytes(content.encode())
        error = check_data(TASKS["translate"].schema, DataConfig(files=files)).errors[0]
        assert error.path == str(paths[0]) and message in error.message and "None" not in str(error)
        assert "carriage" in message or str(paths[1]) in error.message


@pytest.mark.parametrize("delimiter", ["|", "^", ":", "~"])
def test_another_delimiter_is_named(tmp_path: Path, delimiter: str) -> None:
    lines = table(reviews("pos", "neg"), ("text", "label"), delimiter)
    assert f"let the first line be sep={delimiter}" in read(tmp_path, lines).message
    assert read(tmp_path, f"sep={delimiter}\n{lines}").examples == sorted(reviews("pos", "neg"))
    assert "let the first line be sep=," in read(tmp_path, table(reviews("pos"), ("text", "label")), "a.tsv").message


def test_labels_that_contradict_are_counted(tmp_path: Path) -> None:
    rows = [*reviews("pos", "neg"), *reviews("neg", "neg", n=6)]
    assert read(tmp_path, table(rows, ("text", "label"))).report.counts["train: texts with several labels"] == 6


def test_a_problem_of_many_lines_is_printed_five_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "a text,\n" * 60, encoding="utf-8")
    assert main(["data", "check", "classify", "--train-file", str(path)]) == 3
    out = capsys.readouterr().out
    assert out.count("the label is empty") == 6 and "… and 55 lines more of" in out

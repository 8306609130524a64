"""Labels are spelled one way; those that look alike are reported, those that are missing refused."""

from __future__ import annotations

import json
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, reviews, table

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.labels import similar_labels
from glassformer.data.datasets.local_files import load_test
from glassformer.errors import DataError
from glassformer.tasks import TASKS
from glassformer.tasks.heads import CLASSIFY

HEADER = ("text", "label")
NFD = unicodedata.normalize("NFD", "négatif")


def json_lines(*labels: object) -> str:
    return "".join(
        json.dumps({"text": text, "label": labels[i % len(labels)]}) + "\n" for i, (text, _) in enumerate(reviews(""))
    )


@pytest.mark.parametrize(
    "other", [NFD, "né\u00adgatif", "négatif\u200b", "\u200dnégatif", "né\ufeffgatif", "négatif ", "\u00a0négatif"]
)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_one_class_is_spelled_one_way(tmp_path: Path, other: str, name: str) -> None:
    labels = ("négatif", other, "pos")
    content = (
        json_lines(*labels) if name == "a.jsonl" else table(reviews(*labels), HEADER, "\t" if name == "a.tsv" else ",")
    )
    found = read(tmp_path, content, name)
    assert found.classes == {"négatif", "pos"}
    assert found.report.counts["labels spelled another way"] == 8
    assert found.noted("8 labels were brought to NFC", "1 of them became one with another")


def test_joiners_of_scripts_that_need_them_stay(tmp_path: Path) -> None:
    labels = {"👨\u200d👩\u200d👧", "می\u200cخواهم", "ok"}
    assert read(tmp_path, table(reviews(*sorted(labels)), HEADER)).classes == labels


ALIKE = [
    ("pos", "Pos"),
    ("very good", "verygood"),
    ("very good", "very\u00a0good"),
    ("very good", "very_good"),
    ("very-good", "very\u2013good"),
    ("don't", "don\u2019t"),
    ("pos", "pos."),
    ("pos", "(pos)"),
    ("1", "1.0"),
    ("1", "01"),
    ("1", "１"),
    ("0.5", "0,5"),
    ("true", "True"),
    ("straße", "STRASSE"),
    ("İyi", "iyi"),
]


@for_each(("one", "other"), ALIKE)
def test_labels_that_look_alike_are_noted_and_stay_apart(tmp_path: Path, one: str, other: str) -> None:
    found = read(tmp_path, table(reviews(one, other, "neutral"), HEADER, ";"))
    assert found.classes == {one, other, "neutral"}
    assert found.noted("differ in case, spaces, punctuation or number form alone", repr(one), repr(other))


@for_each("labels", [("1", "-1"), ("1", "10"), ("1", "1.5"), ("a1", "a1.0"), ("pos", "neg"), ("1.2.0", "1.2")])
def test_other_labels_are_not_alike(labels: tuple[str, ...]) -> None:
    assert similar_labels(labels) == []


def test_json_booleans_and_numbers(tmp_path: Path) -> None:
    found = read(tmp_path, json_lines(1, 1.0, 0, -0.0, 2.5), "a.jsonl")
    assert found.classes == {"0", "1", "2.5"}
    found = read(tmp_path, json_lines(True, False, "True"), "a.jsonl")
    assert found.classes == {"true", "false", "True"} and found.noted("'true'", "'True'")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "null"])
def test_json_without_a_label(tmp_path: Path, value: str) -> None:
    content = json_lines("pos", "neg") + f'{{"text": "odd", "label": {value}}}\n'
    found = read(tmp_path, content, "a.jsonl")
    assert [issue.line for issue in found.report.errors] == [25]
    assert "a missing value" in found.message or "is null" in found.message


@for_each("value", ["nan", "NaN", "inf", "-inf", "Infinity", "#N/A", "#REF!", "-", "<NA>"])
def test_a_missing_value_is_refused(tmp_path: Path, value: str) -> None:
    found = read(tmp_path, table([*reviews("1", "2.0"), ("odd one", value)], HEADER))
    assert f"a.csv:26: the label is {value!r}, a missing value" in found.message


@pytest.mark.parametrize("value", ["None", "null", "NA", "n/a", "?", "unknown"])
def test_a_word_for_nothing_is_noted(tmp_path: Path, value: str) -> None:
    found = read(tmp_path, table(reviews("1", "2", value), HEADER))
    assert found.noted("spelled as a missing value", repr(value))
    assert found.report.counts["labels spelled as a missing value"] == 8


@pytest.mark.parametrize("value", ["", " ", "\u200b", "\ufeff\u200d"])
def test_an_empty_label_is_refused(tmp_path: Path, value: str) -> None:
    found = read(tmp_path, table([*reviews("pos", "neg"), ("odd one", value)], HEADER))
    assert "a.csv:26: the label is empty" in found.message


def test_a_test_file_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(table([("one", NFD), ("two", "pos\u200b")], HEADER), encoding="utf-8")
    known = partial(CLASSIFY.check_rows, known=["négatif", "pos"])
    schema = DataSchema("classify", TASKS["classify"].schema.columns, check=known)
    assert load_test(schema, DataConfig(files=FilesConfig(test_file=str(path)))).answers == ["négatif", "pos"]
    path.write_text(table([("one", "Pos")], HEADER), encoding="utf-8")
    with pytest.raises(DataError, match=r"t\.csv:2: label 'Pos' is not one of the training data's .négatif, pos"):
        load_test(schema, DataConfig(files=FilesConfig(test_file=str(path))))


@for_each("mark", ["\ufe0f", "\ufe0e", "\u034f", "\u180b", "\u2062", "\U000e0101"])
def test_invisible_characters_are_reported_as_alike(mark: str) -> None:
    assert similar_labels(["good", f"go{mark}od", "bad"]) == [["good", f"go{mark}od"]]


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

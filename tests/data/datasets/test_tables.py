"""The one rule for tables: what the first row is, what parts the columns, which are read, and what is refused."""

from __future__ import annotations

import csv
import json
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, reviews, table, written

from glassformer.cli.main import main
from glassformer.config import DataConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.labels import similar_labels
from glassformer.data.datasets.local_files import load_test, load_text_data
from glassformer.errors import DataError
from glassformer.tasks import TASKS
from glassformer.tasks.heads import CLASSIFY

ROWS, HEADER = reviews("pos", "neg"), ("text", "label")
PAIRS = [(f"the shoe {i} was red", f"der Schuh {i} war rot") for i in range(24)]
NUMBERED = [("7", *row) for row in ROWS]
FLAGS = [(text, "01"[i % 2], "01"[i % 3 > 0]) for i, (text, _) in enumerate(ROWS)]
PREMISES = [(f"the dog {i} ran home", f"an animal {i} moved", "xyz"[i % 3]) for i in range(24)]
FORMS = [("a.csv", ","), ("a.csv", ";"), ("a.csv", "|"), ("a.tsv", "\t")]


# --- the first row ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "delimiter"), FORMS)
@pytest.mark.parametrize(
    ("task", "header", "rows"),
    [
        ("classify", ("text", "label"), ROWS),
        (
            "classify",
            (" Sentiment", "id", "\u200bREVIEW"),
            [(label, str(i), text) for i, (text, label) in enumerate(ROWS)],
        ),
        ("classify", None, ROWS),
        ("classify", None, [("text", "pos"), *ROWS[1:]]),
        ("multilabel", None, [("tags", "pos"), ("x y", "pos;neg"), *ROWS]),
        ("regress", ("body", "stars"), [(text, f"{i}.5") for i, (text, _) in enumerate(ROWS)]),
        ("regress", HEADER, [(text, f"{i}.5") for i, (text, _) in enumerate(ROWS)]),
        ("regress", None, [(text, f"{i}.5") for i, (text, _) in enumerate(ROWS)]),
        ("translate", ("source", "target"), PAIRS),
        ("translate", None, PAIRS),
        ("pretrain", ("text",), [row[:1] for row in ROWS]),
        ("pretrain", None, [row[:1] for row in ROWS]),
    ],
)
def test_a_clear_first_row_is_understood(
    tmp_path: Path, name: str, delimiter: str, task: str, header: tuple[str, ...] | None, rows: list[tuple[str, ...]]
) -> None:
    if header is None and rows[0][0] in ("text", "tags"):  # a usual name: it may be either
        found = read(tmp_path, table(rows, None, delimiter), name, task, label_separator="&")
        assert "its first row may be a header or an example" in found.message
        assert "--header yes or --header no" in found.message
        return
    found = read(tmp_path, table(rows, header, delimiter), name, task)
    assert len(found.examples) == len(rows)
    assert found.noted("first example") and found.noted("no header") == (header is None)


@for_each(
    ("content", "task"),
    [
        (table(ROWS, ("comment_text", "verdict")), "classify"),
        (table([("a film", "odd"), *ROWS]), "classify"),
        (table([("to", "von"), *PAIRS]), "translate"),
        (table([("text", "label"), *PAIRS]), "translate"),
        (table([("text", "y"), *reviews("y", "n")]), "classify"),
        (table(PAIRS, ("en", "de")), "translate"),
        (table([row[:1] for row in ROWS], ("Kommentar",)), "pretrain"),
    ],
)
def test_an_unclear_one_is_refused_until_a_flag_says_it(tmp_path: Path, content: str, task: str) -> None:
    assert "--header yes or --header no" in read(tmp_path, content, task=task).message
    n_rows = content.count("\n")
    assert len(read(tmp_path, content, task=task, header="no").examples) == n_rows
    assert len(read(tmp_path, content, task=task, header="yes").examples) == n_rows - 1


@pytest.mark.parametrize("second", [HEADER, ("Text", "LABEL"), (" text ", "label"), ("\u200btext", "label")])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_headers_of_files_put_together_are_left_out_and_counted(
    tmp_path: Path, second: tuple[str, str], mark: str
) -> None:
    headers = [HEADER, second, HEADER]
    found = read(tmp_path, mark + mark.join(table(ROWS[i::3], header) for i, header in enumerate(headers)))
    assert found.examples == sorted(ROWS)
    assert found.report.counts["repeated headers left out"] == 2
    assert found.report.counts.get("byte order marks", 0) == 3 * bool(mark)
    assert found.noted("a header came again and was left out (line 10, 19)")


@for_each("row", [("7", "Open-Ended Response", "Response"), ("", "What did you like?", "Was it good?")])
def test_a_second_header_is_refused_until_a_flag_calls_it_an_example(tmp_path: Path, row: tuple[str, ...]) -> None:
    content = table([row, *(("7", *pair) for pair in ROWS)], ("id", *HEADER))
    message = read(tmp_path, content).message
    assert f"a.csv:2: the row below the header may be a second header or an example ({row[0]!r}, " in message
    assert "take a second header out: sed 2d a.csv > new.csv; if it is an example: --header yes" in message
    assert len(read(tmp_path, content, header="yes").examples) == 25


@for_each("name", ["a.csv", "a.tsv"])
def test_rows_of_delimiters_alone_are_left_out_at_the_end(tmp_path: Path, name: str) -> None:
    delimiter = ";" if name == "a.csv" else "\t"
    content = table([("1", *row) for row in ROWS], ("id", *HEADER), delimiter) + f"{delimiter * 2}\n" * 3
    found = read(tmp_path, content, name)
    assert found.examples == sorted(ROWS) and found.report.counts["empty lines"] == 3
    assert "a.csv:2: the label is empty" in read(tmp_path, f"text,label\n,\n{table(ROWS)}", header="yes").message


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    found = read(tmp_path, table(ROWS[:12], HEADER) + table([row[::-1] for row in ROWS[12:]], HEADER[::-1]))
    assert "a.csv:14: a second header has the columns in another order" in found.message


# --- the columns -----------------------------------------------------------------------------------------------


@for_each(
    ("header", "rows", "how", "words"),
    [
        (None, [(text, f"c{i}") for i, (text, _) in enumerate(ROWS)], {"header": "no"}, "2 has 24 different values in"),
        (("id", "text", "verdict"), NUMBERED, {"header": "yes"}, "known to hold the label; its columns: id, text"),
        (("text", "text", "label"), NUMBERED, {}, "2 columns have one name ('text', 'text')"),
        (("Text", "text", "label"), NUMBERED, {}, "2 columns have one name ('Text', 'text')"),
        (("0", "1", "2"), NUMBERED, {"header": "yes"}, "name what is read, by number from 1: --text-column …"),
        (("text", "toxic", "rude"), [(*row, "1") for row in ROWS], {"header": "yes"}, "known to hold"),
        (HEADER, [(text, ("pos", "#N/A")[i % 2]) for i, (text, _) in enumerate(ROWS)], {}, "a missing value"),
        (HEADER, [(text, ("pos", "-")[i % 2]) for i, (text, _) in enumerate(ROWS)], {}, "a missing value"),
        (
            HEADER,
            ROWS,
            {"text_column": "body", "label_column": "kind"},
            "no columns 'body' and 'kind'; its columns: te",
        ),
        (("comment_text", "verdict"), ROWS, {"label_column": "verdic"}, "its columns: comment_text, verdict"),
        (("comment_text", "verdict"), ROWS, {"text_column": "9"}, "there is no column '9'; it"),
        (None, ROWS, {"text_column": "9"}, "name it, or give its number from 1: --text-column"),
        (None, [row[::-1] for row in ROWS], {"text_column": "1", "label_column": "1"}, "names the column of the text"),
        (("premise", "hypothesis", "label"), PREMISES, {}, "of the second: --pair-column …; to read one alone"),
        (("words", "kind"), ROWS, {}, "header (words, kind) or number from 1: --text-column … --label-column …"),
        (("nr", "was", "label"), NUMBERED, {}, "--text-column … (of pairs of texts also --pair-column)"),
        (None, NUMBERED, {}, "--text-column … --label-column …"),
        (("text", "a", "b"), FLAGS, {}, "a, b hold 0 and 1"),
        (
            ("text", "a", "b"),
            [(t, ("False", "True")[a == "1"], f"{b}.0") for t, a, b in FLAGS],
            {},
            "a, b hold 0 and 1",
        ),
        (("Datum", "was", "wie", ""), [("1", *row, "") for row in ROWS], {}, "--header no; if yes, name what is read"),
        (None, [("My export", ""), ("", ""), HEADER, *ROWS], {}, "--header no; if yes, name what is read, by"),
        (tuple(f"c{i}" for i in range(3000)), [("x",) * 3000] * 9, {}, "…) or number from 1: --text-column"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is_there(
    header: Any, rows: Any, how: dict[str, str], words: str, tmp_path: Path
) -> None:
    assert words in read(tmp_path, table(rows, header), **how).message


def test_columns_are_named_by_header_or_number(tmp_path: Path) -> None:
    backwards = table([row[::-1] for row in ROWS])
    assert read(tmp_path, backwards).examples == sorted(ROWS), "the column of few values"
    assert read(tmp_path, backwards, text_column="2", label_column="1").examples == sorted(ROWS)
    numbers = table([row[::-1] for row in ROWS], ("2", "1"))
    found = read(tmp_path, numbers, text_column="2", label_column="1", header="yes")
    assert found.examples == sorted(ROWS), "a number is a place and never a name"
    assert read(tmp_path, table(NUMBERED, ("Text", *HEADER)), text_column="text").examples == sorted(ROWS)
    assert read(tmp_path, table(ROWS, ("comment_text", "verdict")), label_column="Verdict").examples == sorted(ROWS)


def test_a_column_that_is_not_read_makes_no_header_an_example(tmp_path: Path) -> None:
    content = table([(*row, "korpus-0") for row in PAIRS], ("English", "Deutsch", "quelle"))
    named = {"task": "translate", "src_column": "1", "tgt_column": "2"}
    assert "--header yes or --header no" in read(tmp_path, content, **named).message
    assert len(read(tmp_path, content, header="yes", **named).examples) == len(PAIRS)


def test_a_title_above_the_header_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, f"My export\n{table(ROWS, HEADER)}")
    assert found.error is not None and "if line 1 is a title or a comment, take it out" in found.error.hint


def test_empty_texts_are_counted_when_a_training_starts(tmp_path: Path) -> None:
    found = read(tmp_path, table([("", "pos"), ("\u200b", "neg"), *ROWS], HEADER))
    assert found.text is not None and found.text.counts["empty texts"] == 2


def test_a_long_text_that_is_not_read_is_named(tmp_path: Path) -> None:
    content = table([(text, f"{text} again", label) for text, label in ROWS], ("text", "reply", "label"))
    assert read(tmp_path, content).noted("column 'reply' is not read", "--pair-column 'reply'")


def test_lists_in_json_lines_are_of_several_labels(tmp_path: Path) -> None:
    content = "".join(json.dumps({"text": text, "labels": [label]}) + "\n" for text, label in ROWS)
    found = read(tmp_path, content, "a.jsonl")
    assert "a.jsonl:1: 'labels' is a list; `multilabel` reads texts with several labels" in found.message
    assert len(found.report.errors) == 1, "one line for the file"
    assert len(read(tmp_path, content, "a.jsonl", "multilabel").examples) == 24


@for_each(
    ("name", "task", "cell"),
    [
        ("a.csv", "multilabel", "[0 1 0]"),
        ("a.csv", "multilabel", "[0. 1. 1.]"),
        ("a.csv", "multilabel", "0|1"),
        ("a.csv", "classify", "1 0 0"),
        ("a.jsonl", "multilabel", [0, 1]),
        ("a.jsonl", "multilabel", [True, False, False]),
        ("a.jsonl", "multilabel", [1.0, 0.0]),
    ],
)
def test_vectors_of_0_and_1_are_one_sentence(tmp_path: Path, name: str, task: str, cell: Any) -> None:
    lines = (f"{text},{cell}" if name == "a.csv" else json.dumps({"text": text, "labels": cell}) for text, _ in ROWS)
    header = "text,labels\n" * (name == "a.csv")
    found = read(tmp_path, header + "\n".join(lines), name, task)
    assert " is a vector of 0 and 1 write the names of each text's labels" in found.message
    assert not found.report.errors


@for_each(
    "content",
    ['[\n{"text": "a", "label": "b"},\n', '{\n"text": "a",\n', '{"text": "a", "text": "b"}\n', "3\n", "text,y\n"],
)
def test_json_of_another_form_is_one_error(tmp_path: Path, content: str) -> None:
    found = read(tmp_path, content * 20, "a.jsonl")
    assert len(found.report.errors) == 1 and "; write one object a line, such as {" in found.message


@for_each("cell", ["['a', 'b']", "{'a'}", "('a', 'b')", "[[1, 2]]", "{billing}", "(fees)", '{"a": 1}', "0;1;0"])
def test_lists_as_programs_print_them_are_refused(tmp_path: Path, cell: str) -> None:
    rows = [("text", "labels"), *((text, cell) for text, _ in ROWS)]
    found = read(tmp_path, written(rows), task="multilabel")
    assert f"the cell {cell!r} is " in found.message and len(found.report.errors) < 2, "one line for the file"


@for_each("text", ["\u200b", "\u2060 \ufeff", "\u00ad"])
def test_texts_of_invisible_characters_are_empty(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, table([*PAIRS, (text, "leer"), ("empty", text)], ("source", "target")), task="translate")
    assert found.report.counts["train: empty"] == 2


def test_labels_of_json_are_a_name_or_a_list(tmp_path: Path) -> None:
    content = "".join(json.dumps({"text": text, "labels": {"pos": 1}}) + "\n" for text, _ in ROWS)
    for task in ("classify", "multilabel"):
        found = read(tmp_path, content, "a.jsonl", task)
        assert "'labels' is an object; write the name of the label, or a list of names" in found.message


@pytest.mark.parametrize("labels", [("0", "1", "-1"), ("a", "b", "9999")])
def test_codes_of_a_label_that_is_not_known_are_noted(tmp_path: Path, labels: tuple[str, ...]) -> None:
    assert read(tmp_path, table(reviews(*labels), HEADER)).noted("spelled as a missing value", f"{labels[2]!r} (8)")


def test_a_limit_that_leaves_one_class_is_refused_by_the_check(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table(ROWS, HEADER), encoding="utf-8")
    data = DataConfig(limit=1, train_file=str(tmp_path / "a.csv"))
    [problem] = check_data(TASKS["classify"].schema, data).errors
    assert "two or more labels are needed" in problem.message


@for_each("form", ["{},5", "{}%", "$ {}.5", "2024-01-{}"])
def test_numbers_in_one_other_form_are_one_line(tmp_path: Path, form: str) -> None:
    content = table([(text, form.format(i)) for i, (text, _) in enumerate(ROWS)], ("text", "stars"), ";")
    found = read(tmp_path, content, task="regress", header="yes")
    assert len(found.report.errors) == 1
    assert f"a.csv:2: {form.format(0)!r} is not a number" in found.message
    assert "(and 23 more of this form)" in found.message


def test_annotations_that_were_rejected_are_refused(tmp_path: Path) -> None:
    rows = [
        {"text": text, "label": label, "status": ("Validated", "Discarded")[i == 20]}
        for i, (text, label) in enumerate(ROWS)
    ]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    assert "a.jsonl:21: 'status' is 'Discarded', so this annotation" in read(tmp_path, content, "a.jsonl").message
    assert len(read(tmp_path, content, "a.jsonl", label_column="status").classes) == 2
    named = written([("text", "label", "status"), *(tuple(row.values()) for row in rows)])
    assert "'status' is 'Discarded', so this annotation" in read(tmp_path, named).message


def test_labels_that_are_parted_in_two_ways_are_noted(tmp_path: Path) -> None:
    rows = [(text, ("a;b", "a", "b|a", "b")[i % 4]) for i, (text, _) in enumerate(ROWS)]
    assert read(tmp_path, table(rows, ("text", "labels")), task="multilabel").noted("parts are labels too: 'b|a' (6)")


def test_texts_that_spell_a_missing_value_are_counted(tmp_path: Path) -> None:
    found = read(tmp_path, table([*ROWS, ("nan", "pos"), ("#NAME?", "neg"), ("nan", "pos")], HEADER))
    assert found.report.counts["texts spelled as a missing value"] == 3 and found.noted("'nan' (2), '#NAME?' (1)")
    content = table([*PREMISES, ("the dog 99 ran home", "nan", "x")], ("premise", "hypothesis", "label"))
    assert read(tmp_path, content, pair_column="hypothesis").noted("spelled as a missing value: 'nan' (1)")


# --- delimiters and quotes -------------------------------------------------------------------------------------


def test_two_delimiters_that_fit_are_refused(tmp_path: Path) -> None:
    content = table([(f"well, film {i}", "pn"[i % 2]) for i in range(24)], None, ";")
    assert "--delimiter ',' or --delimiter ';'" in read(tmp_path, content).message
    assert read(tmp_path, content, delimiter=";").classes == {"p", "n"}
    assert read(tmp_path, table(ROWS, None, "~"), delimiter="~").examples == sorted(ROWS)
    assert read(tmp_path, table(ROWS, None, "\t"), delimiter="\\t").examples == sorted(ROWS)
    for wrong in ("", "||", '"', "\n"):
        assert "--delimiter is one character, not" in read(tmp_path, content, delimiter=wrong).message
    assert "say what parts them: --delimiter" in read(tmp_path, table(ROWS, HEADER), "a.tsv").message


def stray(lines: list[str], column: int, begin: int, end: int, delimiter: str) -> str:
    """Put a quote before a cell of one line and behind that cell of another."""
    cells = [line.split(delimiter) for line in lines]
    cells[begin][column] = '"' + cells[begin][column]
    cells[end][column] += '"'
    return "".join(delimiter.join(row) + "\n" for row in cells)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(("begin", "end"), [(5, 12), (5, 6), (0, 9), (1, 24), (23, 24)])
def test_rows_that_a_quote_joins_are_refused(tmp_path: Path, delimiter: str, begin: int, end: int) -> None:
    for rows, header, column, task in (
        (ROWS, HEADER, 0, "classify"),
        ([row[::-1] for row in ROWS], HEADER[::-1], 1, "classify"),
        ([("7", *row) for row in ROWS], ("id", *HEADER), 1, "classify"),
        (PAIRS, ("source", "target"), 0, "translate"),
        ([(text, f"{i}.5") for i, (text, _) in enumerate(ROWS)], ("body", "stars"), 0, "regress"),
    ):
        content = stray(table(rows, header, delimiter).splitlines(), column, begin, end, delimiter)
        found = read(tmp_path, content, task=task, delimiter=delimiter)
        issues = [issue for issue in found.report.errors if issue.kind == "quote"]
        assert [issue.line for issue in issues] == [begin + 1]
        assert f"lines {begin + 1} to {end + 1}" in issues[0].message and "--quotes no" in issues[0].message
        if begin:
            kept = read(tmp_path, content, task=task, delimiter=delimiter, quotes="no")
            assert len(kept.examples) == 24


@for_each(
    "text",
    [
        "Dear John,\nthe shoes came, both, thank you\nMary",
        "Shall I buy it? Well, pos\nor neg, who knows, neg\nor neither",
        "def f(a,b):\n    return g(a,b)",
    ],
)
def test_a_text_of_several_lines_is_a_text(tmp_path: Path, text: str) -> None:
    rows = [(f"{i} {text}", label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, written([HEADER, *rows]))
    assert found.examples == sorted(rows) and found.noted("24 quoted fields go over several lines")


def test_a_text_that_is_a_table_needs_quotes_everywhere_or_a_flag(tmp_path: Path) -> None:
    rows = [*ROWS, ("a,pos\nb,neg\nc", "pos")]
    assert "--quotes yes" in read(tmp_path, written([HEADER, *rows])).message
    assert read(tmp_path, written([HEADER, *rows]), quotes="yes").examples == sorted(rows)
    assert read(tmp_path, written([HEADER, *rows], quoting=csv.QUOTE_ALL)).examples == sorted(rows)


@pytest.mark.parametrize("text", ['"the shoe {}"', '"the" shoe and "{}"', '"shoe {}', 'shoe {}"', 'a 5" shoe {}'])
def test_quotes_in_a_tsv_are_characters(tmp_path: Path, text: str) -> None:
    rows = [(text.format(i), label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, table(rows, HEADER, "\t"), "a.tsv")
    assert found.examples == sorted(rows)
    assert found.noted("24 fields begin and end with a quote", "--quotes yes") == (text[0] == text[-1] == '"')
    assert read(tmp_path, written([HEADER, *rows], "\t"), "a.tsv", quotes="yes").examples == sorted(rows)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("n", [24, 40_000])
def test_lines_that_end_in_carriage_returns_alone(tmp_path: Path, name: str, n: int) -> None:
    content = table(reviews("pos", "neg", n=n), HEADER, "\t" if name == "a.tsv" else ",").replace("\n", "\r")
    assert "carriage returns" in read(tmp_path, content, name).message


@for_each(("name", "task"), [("a.txt", "pretrain"), ("a.txt", "lm"), ("a.jsonl", "classify")])
@for_each("final", ["\r", "", "\r\n"])
def test_carriage_returns_alone_in_other_files(name: str, task: str, final: str, tmp_path: Path) -> None:
    lines = ['{{"text": "{}", "label": "{}"}}'.format(*row) for row in ROWS]
    found = read(tmp_path, "\r".join(lines) + final, name, task)
    assert "lines end in carriage returns alone" in found.message and "CRLF line ends" not in found.report.counts


def test_a_carriage_return_in_a_row(tmp_path: Path) -> None:
    found = read(tmp_path, "text,label\n" + table(ROWS).replace("\n", "\r"))
    assert "a.csv:2: a carriage return stands outside quotes" in found.message


# --- encodings -------------------------------------------------------------------------------------------------


@for_each("encoding", ["cp1252", "utf-16", "shift_jis"])
def test_another_encoding_is_one_error_and_a_flag(tmp_path: Path, encoding: str) -> None:
    word = "映画" if encoding == "shift_jis" else "très bon"
    rows = [(f"{word} {i}", label) for i, (_, label) in enumerate(ROWS)]
    content = table(rows, HEADER).encode(encoding)
    found = read(tmp_path, content)
    assert "--encoding" in found.message and len(found.report.errors) == 1
    assert read(tmp_path, content, encoding=encoding).examples == sorted(rows)
    for name in ("latin-9000", "rot13"):
        assert f"there is no encoding {name!r}" in read(tmp_path, content, encoding=name).message


# --- what else stands in the way -------------------------------------------------------------------------------


def test_one_example_a_class(tmp_path: Path) -> None:
    rows = [(text, f"c{i:03}") for i, (text, _) in enumerate(reviews("", n=30))]
    requested = read(tmp_path, table(rows, HEADER), label_column="label")
    assert "each holds the last example of a label" in requested.message and "--valid-file" in requested.message
    valid = tmp_path / "v.csv"
    valid.write_text(table([("other", "c001")], HEADER), encoding="utf-8")
    assert len(read(tmp_path, table(rows, HEADER), label_column="label", valid_file=str(valid)).examples) == 31


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_a_folder_or_device_is_called_so(tmp_path: Path, task: str) -> None:
    schema = TASKS[task].schema
    (tmp_path / "folder").mkdir()
    for path, message in ((str(tmp_path / "folder"), "this is a folder"), ("/dev/null", "a pipe or a device")):
        if Path(path).exists():
            with pytest.raises(DataError, match=message):
                load_text_data(schema, DataConfig(train_file=path))


def test_parallel_files_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / "a.src", tmp_path / "a.tgt"]
    files = DataConfig(src_file=str(paths[0]), tgt_file=str(paths[1]))
    for content, message in (("a b\n" * 20, "1 different text"), ("a\rb\rc\r", "carriage returns alone")):
        for path in paths:
            path.write_bytes(content.encode())
        error = check_data(TASKS["translate"].schema, files).errors[0]
        assert error.path == str(paths[0]) and message in error.message and "None" not in str(error)
        assert "carriage" in message or str(paths[1]) in error.message


def test_a_problem_of_many_lines_is_printed_five_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "a text,\n" * 60, encoding="utf-8")
    assert main(["data", "check", "classify", "--train-file", str(path)]) == 3
    out = capsys.readouterr().out
    assert out.count("the label is empty") == 6 and "… and 55 lines more of" in out


def test_marks_in_json_lines_and_in_text(tmp_path: Path) -> None:
    lines = ['{{"text": "{}", "label": "{}"}}'.format(*row) for row in ROWS]
    found = read(tmp_path, "\ufeff" + "\n".join(lines[:12]) + "\n\ufeff" + "\n".join(lines[12:]), "a.jsonl")
    assert found.examples == sorted(ROWS) and found.report.counts["byte order marks"] == 2
    texts = read(tmp_path, "\ufeffone line\n\ufeff\ufefftwo lines\nthree lines\n", "a.txt", "pretrain")
    assert [text for text, _ in texts.examples] == ["one line", "three lines", "two lines"]
    running = read(tmp_path, "\ufeffone line\n\ufefftwo lines\n" * 20, "a.txt", "lm")
    assert "\ufeff" not in "".join(text for text, _ in running.examples)


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


MARKS = ["\ufe0f", "\ufe0e", "\u034f", "\u180b", "\u2062", "\U000e0101"]
ALIKE = [
    ["pos", "Pos", "pos.", "(pos)"],
    ["very good", "verygood", "very\u00a0good", "very_good", "very-good", "very\u2013good"],
    ["don't", "don\u2019t"],
    ["1", "1.0", "01", "１"],
    ["0.5", "0,5"],
    ["straße", "STRASSE"],
    ["İyi", "iyi"],
    ["good", *(f"go{mark}od" for mark in MARKS)],
]


@for_each("group", ALIKE)
def test_labels_that_look_alike_are_noted_and_stay_apart(tmp_path: Path, group: list[str]) -> None:
    assert similar_labels([*group, "neutral"]) == [group]
    found = read(tmp_path, table(reviews(*group[:2], "neutral"), HEADER, ";"))
    assert found.classes == {*group[:2], "neutral"}
    assert found.noted("differ in case, spaces, punctuation or number form alone", *map(repr, group[:2]))


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


@pytest.mark.parametrize("value", ["None", "null", "NA", "n/a", "?", "unknown"])
def test_a_word_for_nothing_is_noted(tmp_path: Path, value: str) -> None:
    found = read(tmp_path, table(reviews("1", "2", value), HEADER))
    assert found.noted("spelled as a missing value", repr(value))
    assert found.report.counts["labels spelled as a missing value"] == 8


def test_a_test_file_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(table([("one", NFD), ("two", "pos\u200b")], HEADER), encoding="utf-8")
    known = partial(CLASSIFY.check_rows, known=["négatif", "pos"])
    schema = DataSchema("classify", TASKS["classify"].schema.columns, check=known)
    assert load_test(schema, DataConfig(test_file=str(path))).answers == ["négatif", "pos"]
    path.write_text(table([("one", "Pos")], HEADER), encoding="utf-8")
    with pytest.raises(DataError, match=r"t\.csv:2: label 'Pos' is not one of the training data's .négatif, pos"):
        load_test(schema, DataConfig(test_file=str(path)))


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


@for_each(
    "value", ["nan", "NaN", "inf", "-inf", "Infinity", "#N/A", "#REF!", "-", "<NA>", "", " ", "\u200b", "\ufeff\u200d"]
)
def test_a_missing_label_is_refused(tmp_path: Path, value: str) -> None:
    what = f"{value!r}, a missing value" if value.isprintable() and value.strip() else "empty"
    found = read(tmp_path, table([*reviews("1", "2.0"), ("odd one", value)], HEADER))
    assert f"a.csv:26: the label is {what}" in found.message

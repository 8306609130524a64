"""The one rule for tables: what the first row is, what parts the columns, which are read, and what is refused."""

import csv
import json
import unicodedata
from functools import partial

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, reviews, table, written

from glassformer.config import DataConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.labels import similar_labels
from glassformer.data.datasets.local_files import load_test
from glassformer.errors import DataError
from glassformer.tasks import TASKS
from glassformer.tasks.heads import CLASSIFY

ROWS, HEADER = reviews("pos", "neg"), ("text", "label")
TEXTS = [text for text, _ in ROWS]
TURNED, NUMBERED = [row[::-1] for row in ROWS], [("7", *row) for row in ROWS]
STARS = [(text, f"{i}.5") for i, text in enumerate(TEXTS)]
PAIRS = [(f"the shoe {i} was red", f"der Schuh {i} war rot") for i in range(24)]
FLAGS = [(text, "01"[i % 2], "01"[i % 3 > 0]) for i, text in enumerate(TEXTS)]
TRUTHS = [(text, ("False", "True")[a == "1"], f"{b}.0") for text, a, b in FLAGS]
PREMISES = [(f"the dog {i} ran home", f"an animal {i} moved", "xyz"[i % 3]) for i in range(24)]
FORMS = [("a.csv", ","), ("a.csv", ";"), ("a.csv", "|"), ("a.tsv", "\t")]


def json_lines(*labels: object) -> str:
    return "".join(json.dumps({"text": text, "label": labels[i % len(labels)]}) + "\n" for i, text in enumerate(TEXTS))


# --- the first row ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "delimiter"), FORMS)
@pytest.mark.parametrize(
    ("task", "header", "rows"),
    [
        ("classify", ("text", "label"), ROWS),
        ("classify", (" Sentiment", "id", "\u200bREVIEW"), [(label, str(i), t) for i, (t, label) in enumerate(ROWS)]),
        ("classify", None, ROWS),
        ("regress", ("body", "stars"), STARS),
        ("regress", HEADER, STARS),
        ("regress", None, STARS),
        ("translate", ("source", "target"), PAIRS),
        ("translate", None, PAIRS),
        ("pretrain", ("text",), [row[:1] for row in ROWS]),
        ("pretrain", None, [row[:1] for row in ROWS]),
    ],
)
def test_a_clear_first_row_is_understood(tmp_path, name, delimiter, task, header, rows):
    found = read(tmp_path, table(rows, header, delimiter), name, task)
    assert len(found.examples) == len(rows)
    assert found.noted("first example") and found.noted("no header") == (header is None)


@for_each(
    ("content", "task"),
    [
        (table(ROWS, ("comment_text", "verdict")), "classify"),
        (table([("a film", "odd"), *ROWS]), "classify"),
        (table([("text", "pos"), *ROWS[1:]]), "classify"),
        (table([("to", "von"), *PAIRS]), "translate"),
        (table([("text", "label"), *PAIRS]), "translate"),
        (table([("text", "y"), *reviews("y", "n")]), "classify"),
        (table(PAIRS, ("en", "de")), "translate"),
        (table([row[:1] for row in ROWS], ("Kommentar",)), "pretrain"),
    ],
)
def test_an_unclear_one_is_refused_until_a_flag_says_it(tmp_path, content, task):
    message = read(tmp_path, content, task=task).message
    assert "its first row may be a header or an example" in message and "--header yes or --header no" in message
    n_rows = content.count("\n")
    assert len(read(tmp_path, content, task=task, header="no").examples) == n_rows
    assert len(read(tmp_path, content, task=task, header="yes").examples) == n_rows - 1


@pytest.mark.parametrize("second", [HEADER, ("Text", "LABEL"), (" text ", "label"), ("\u200btext", "label")])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_headers_of_files_put_together_are_left_out_and_counted(tmp_path, second, mark):
    headers = [HEADER, second, HEADER]
    found = read(tmp_path, mark + mark.join(table(ROWS[i::3], header) for i, header in enumerate(headers)))
    assert found.examples == sorted(ROWS)
    assert found.report.counts["repeated headers left out"] == 2
    assert found.report.counts.get("byte order marks", 0) == 3 * bool(mark)
    assert found.noted("a header came again and was left out (line 10, 19)")


@for_each("row", [("7", "Open-Ended Response", "Response"), ("", "What did you like?", "Was it good?")])
def test_a_second_header_is_refused_until_a_flag_calls_it_an_example(tmp_path, row):
    content = table([row, *NUMBERED], ("id", *HEADER))
    message = read(tmp_path, content).message
    assert f"a.csv:2: the row below the header may be a second header or an example ({row[0]!r}, " in message
    assert "take a second header out; if it is an example: --header yes" in message
    assert len(read(tmp_path, content, header="yes").examples) == 25


@for_each(("name", "delimiter"), [("a.csv", ";"), ("a.tsv", "\t")])
def test_rows_of_delimiters_alone_are_left_out_at_the_end(tmp_path, name, delimiter):
    content = table([("1", *row) for row in ROWS], ("id", *HEADER), delimiter) + f"{delimiter * 2}\n" * 3
    found = read(tmp_path, content, name)
    assert found.examples == sorted(ROWS) and found.report.counts["empty lines"] == 3


# --- what is refused -------------------------------------------------------------------------------------------


@for_each(
    ("words", "content", "how"),
    [
        ("2 has 24 different values in", table([(text, f"c{i}") for i, text in enumerate(TEXTS)]), {"header": "no"}),
        ("hold the label; its columns: id, text", table(NUMBERED, ("id", "text", "verdict")), {"header": "yes"}),
        ("2 columns have one name ('text', 'text')", table(NUMBERED, ("text", *HEADER)), {}),
        ("2 columns have one name ('Text', 'text')", table(NUMBERED, ("Text", *HEADER)), {}),
        ("columns: 0, 1, 2 name what is read, by", table(NUMBERED, ("0", "1", "2")), {"header": "yes"}),
        ("known to hold", table([(*row, "1") for row in ROWS], ("text", "toxic", "rude")), {"header": "yes"}),
        ("no columns 'x' and 'y'; its columns: te", table(ROWS, HEADER), {"text_column": "x", "label_column": "y"}),
        ("columns: comment_text, verdict", table(ROWS, ("comment_text", "verdict")), {"label_column": "verdic"}),
        ("there is no column '9'; it", table(ROWS, ("comment_text", "verdict")), {"text_column": "9"}),
        ("name it, or give its number from 1: --text-column", table(ROWS), {"text_column": "9"}),
        ("names the column of the text", table(TURNED), {"text_column": "1", "label_column": "1"}),
        ("second: --pair-column …; to read one alone", table(PREMISES, ("premise", "hypothesis", "label")), {}),
        ("header or by number from 1: --text-column … --label-column …", table(ROWS, ("words", "kind")), {}),
        ("by number from 1: --text-column …", table(NUMBERED, ("nr", "was", "label")), {}),
        ("--text-column … --label-column …", table(NUMBERED), {}),
        ("a, b hold 0 and 1", table(FLAGS, ("text", "a", "b")), {}),
        ("a, b hold 0 and 1", table(TRUTHS, ("text", "a", "b")), {}),
        ("--header no; if yes, name", table([("1", *row, "") for row in ROWS], ("Datum", "was", "wie", "")), {}),
        ("--header no; if yes, name what is read, by", table([("My export", ""), ("", ""), HEADER, *ROWS]), {}),
        ("by number from 1: --text-c", table([("x",) * 3000] * 9, tuple(f"c{i}" for i in range(3000))), {}),
        (
            "first row may be a header",
            table([("tags", "p"), ("x y", "p;n"), *reviews("p", "n")]),
            {"task": "multilabel"},
        ),
        ("if line 1 is a title or a comment, take it out", f"My export\n{table(ROWS, HEADER)}", {}),
        ("name the delimiter: --delimiter", table(ROWS, HEADER), {"name": "a.tsv"}),
        ("a.csv:14: a second header has the colu", table(ROWS[:12], HEADER) + table(TURNED, HEADER[::-1]), {}),
        ("a.csv:2: the label is empty", f"text,label\n,\n{table(ROWS)}", {"header": "yes"}),
        ("a.csv:11: the label is empty", "".join("sep=;\n" + table(ROWS[i::3], HEADER, ";") for i in range(3)), {}),
        ("a.csv:2: a carriage return stands outside quotes", "text,label\n" + table(ROWS).replace("\n", "\r"), {}),
        ("'label' is an object; write the name of the label, or a list", json_lines({"pos": 1}), {"name": "a.jsonl"}),
        ("'label' is an object", json_lines({"pos": 1}), {"name": "a.jsonl", "task": "multilabel"}),
    ],
)
def test_what_is_not_clear_is_refused_with_what_mends_it(words, content, how, tmp_path):
    assert words in read(tmp_path, content, **how).message


@for_each("form", ["{},5", "{}%", "$ {}.5", "2024-01-{}"])
def test_numbers_in_another_form_are_refused(tmp_path, form):
    content = table([(text, form.format(i)) for i, text in enumerate(TEXTS)], ("text", "stars"), ";")
    found = read(tmp_path, content, task="regress", header="yes")
    assert f"a.csv:2: {form.format(0)!r} is not a number" in found.message and "(and 23 more" in found.message


@for_each("value", [*"nan NaN inf -inf Infinity #N/A #REF! - <NA>".split(), "", " ", "\u200b", "\ufeff\u200d"])
def test_a_missing_label_is_refused(tmp_path, value):
    what = f"{value!r}, a missing value" if value.isprintable() and value.strip() else "empty"
    found = read(tmp_path, table([*reviews("1", "2.0"), ("odd one", value)], HEADER))
    assert f"a.csv:26: the label is {what}" in found.message


@for_each(
    ("name", "task", "cell"),
    [
        *(("a.csv", "multilabel", cell) for cell in ("[0 1 0]", "[0. 1. 1.]", "0|1", "0;1;0")),
        ("a.csv", "classify", "1 0 0"),
        *(("a.jsonl", "multilabel", cell) for cell in ([0, 1], [True, False, False], [1.0, 0.0])),
    ],
)
def test_vectors_of_0_and_1_are_one_sentence(tmp_path, name, task, cell):
    content = json_lines(cell) if name == "a.jsonl" else table([(text, cell) for text in TEXTS], HEADER)
    found = read(tmp_path, content, name, task)
    assert " is a vector of 0 and 1 write the names of each text's labels" in found.message
    assert not found.report.errors


OBJECTS = ['[\n{"text": "a", "label": "b"},\n', '{\n"text": "a",\n', '{"text": "a", "text": "b"}\n', "3\n", "text,y\n"]
LISTS = ["['a', 'b']", "{'a'}", "('a', 'b')", "[[1, 2]]", "{billing}", "(fees)", '{"a": 1}']
RETURNS = [{"name": "a.jsonl"}, {"name": "a.txt", "task": "lm"}, {"name": "a.txt", "task": "pretrain"}]


@for_each(
    ("words", "content", "how"),
    [
        ("1: 'label' is a list; `multilabel` reads texts with several", json_lines(["a"], ["b"]), {"name": "a.jsonl"}),
        *(("; write one object a line, such as {", line * 20, {"name": "a.jsonl"}) for line in OBJECTS),
        *(
            (f"cell {cell!r} is ", written([HEADER, *((t, cell) for t in TEXTS)]), {"task": "multilabel"})
            for cell in LISTS
        ),
        *(
            ("lines end in carriage returns alone", "\r".join(TEXTS) + end, how)
            for end in ("\r", "", "\r\n")
            for how in RETURNS
        ),
        *(
            (
                "carriage returns",
                table(reviews("p", "n", n=n), HEADER, FORMS[at][1]).replace("\n", "\r"),
                {"name": FORMS[at][0]},
            )
            for n in (24, 40_000)
            for at in (0, 3)
        ),
    ],
)
def test_what_is_of_another_form_is_one_sentence_for_the_file(words, content, how, tmp_path):
    found = read(tmp_path, content, **how)
    assert words in found.message and len(found.report.errors) < 2
    assert "CRLF line ends" not in found.report.counts


def test_annotations_that_were_rejected_are_refused(tmp_path):
    marked = [(*row, ("Validated", "Discarded")[i == 20]) for i, row in enumerate(ROWS)]
    names = (*HEADER, "status")
    content = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in marked)
    assert "a.jsonl:21: 'status' is 'Discarded', so this annotation" in read(tmp_path, content, "a.jsonl").message
    assert len(read(tmp_path, content, "a.jsonl", label_column="status").classes) == 2
    assert "'status' is 'Discarded', so this annotation" in read(tmp_path, table(marked, names)).message


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "null"])
def test_json_without_a_label(tmp_path, value):
    content = json_lines("pos", "neg") + f'{{"text": "odd", "label": {value}}}\n'
    found = read(tmp_path, content, "a.jsonl")
    assert [issue.line for issue in found.report.errors] == [25]
    assert (f"a.jsonl:25: {value} is no number of JSON" if value != "null" else "is null") in found.message
    unread = read(tmp_path, content.replace('"label": ' + value, f'"label": "pos", "x": [{value}]'), "a.jsonl")
    assert unread.report.ok == (value == "null")


def test_one_example_a_class(tmp_path):
    content = table([(text, f"c{i:03}") for i, (text, _) in enumerate(reviews("", n=30))], HEADER)
    requested = read(tmp_path, content, label_column="label")
    assert "each holds the last example of a label" in requested.message and "--valid-file" in requested.message
    (tmp_path / "v.csv").write_text(table([("other", "c001")], HEADER), "utf-8")
    assert len(read(tmp_path, content, label_column="label", valid_file=str(tmp_path / "v.csv")).examples) == 31


def test_parallel_files_are_named(tmp_path):
    paths = [tmp_path / "a.src", tmp_path / "a.tgt"]
    files = DataConfig(src_file=str(paths[0]), tgt_file=str(paths[1]))
    for content, message in (("a b\n" * 20, "1 different text"), ("a\rb\rc\r", "carriage returns alone")):
        for path in paths:
            path.write_bytes(content.encode())
        error = check_data(TASKS["translate"].schema, files).errors[0]
        assert error.path == str(paths[0]) and message in error.message and "None" not in str(error)
        assert "carriage" in message or str(paths[1]) in error.message


def test_of_a_kind_of_problem_ten_are_printed(tmp_path, cli):
    path = tmp_path / "a.csv"
    path.write_text("text,number\n" + "".join(f"a text,{i}!\n" for i in range(800)) + "short\n", "utf-8")
    out = cli("data", "check", "regress", "--train-file", path).out
    assert out.count("is not a number") == 10 and f"… and 790 more: {path} (label)\n" in out
    assert "a.csv:802: 2 columns are expected" in out


def test_a_limit_that_leaves_one_class_is_refused_by_the_check(tmp_path):
    (tmp_path / "a.csv").write_text(table(ROWS, HEADER), "utf-8")
    data = DataConfig(limit=1, train_file=str(tmp_path / "a.csv"))
    [problem] = check_data(TASKS["classify"].schema, data).errors
    assert "two or more labels are needed" in problem.message


# --- the columns -----------------------------------------------------------------------------------------------


@for_each(
    ("content", "how"),
    [
        (table(TURNED), {}),  # the column of few values
        (table(TURNED), {"text_column": "2", "label_column": "1"}),
        (table(TURNED, ("2", "1")), {"text_column": "2", "label_column": "1", "header": "yes"}),  # never names
        (table(NUMBERED, ("Text", *HEADER)), {"text_column": "text"}),
        (table(ROWS, ("comment_text", "verdict")), {"label_column": "Verdict"}),
        (table(ROWS, None, "~"), {"delimiter": "~"}),
        (table(ROWS, None, "\t"), {"delimiter": "\\t"}),
        (written([HEADER, *ROWS], "\t", csv.QUOTE_ALL), {"name": "a.tsv", "quotes": "yes"}),
        ("\nsep=;\n" + table(NUMBERED, None, ";"), {"text_column": "2", "label_column": "3"}),
        ("sep=;\n" + table(NUMBERED, ("id", *HEADER), ";"), {}),
    ],
)
def test_columns_are_named_by_header_or_number(tmp_path, content, how):
    assert read(tmp_path, content, **how).examples == sorted(ROWS)


def test_a_column_that_is_not_read_makes_no_header_an_example(tmp_path):
    content = table([(*row, "korpus-0") for row in PAIRS], ("English", "Deutsch", "quelle"))
    named = {"task": "translate", "src_column": "1", "tgt_column": "2"}
    assert "--header yes or --header no" in read(tmp_path, content, **named).message
    assert len(read(tmp_path, content, header="yes", **named).examples) == len(PAIRS)


def test_a_long_text_that_is_not_read_is_named(tmp_path):
    content = table([(text, f"{text} again", label) for text, label in ROWS], ("text", "reply", "label"))
    assert read(tmp_path, content).noted("column 'reply' is not read", "--pair-column 'reply'")


def test_texts_that_are_empty_or_spell_a_missing_value_are_counted(tmp_path):
    found = read(tmp_path, table([("", "pos"), ("\u200b", "neg"), *ROWS], HEADER))
    assert found.text is not None and found.text.counts["empty texts"] == 2
    for text in ("\u200b", "\u2060 \ufeff", "\u00ad"):
        pairs = table([*PAIRS, (text, "leer"), ("empty", text)], ("source", "target"))
        assert read(tmp_path, pairs, task="translate").report.counts["train: empty"] == 2
    found = read(tmp_path, table([*ROWS, ("nan", "pos"), ("#NAME?", "neg"), ("nan", "pos")], HEADER))
    assert found.report.counts["texts spelled as a missing value"] == 3 and found.noted("'nan' (2), '#NAME?' (1)")
    content = table([*PREMISES, ("the dog 99 ran home", "nan", "x")], ("premise", "hypothesis", "label"))
    assert read(tmp_path, content, pair_column="hypothesis").noted("spelled as a missing value: 'nan' (1)")


# --- delimiters and quotes -------------------------------------------------------------------------------------


def test_two_delimiters_that_fit_are_refused(tmp_path):
    content = table([(f"well, film {i}", "pn"[i % 2]) for i in range(24)], None, ";")
    assert "--delimiter ',' or --delimiter ';'" in read(tmp_path, content).message
    assert read(tmp_path, content, delimiter=";").classes == {"p", "n"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(("begin", "end"), [(5, 12), (5, 6), (0, 9), (1, 24), (23, 24)])
def test_rows_that_a_quote_joins_are_refused(tmp_path, delimiter, begin, end):
    """A quote before a cell of one line, and one behind that cell of another."""
    for rows, header, column, task in (
        (ROWS, HEADER, 0, "classify"),
        (TURNED, HEADER[::-1], 1, "classify"),
        (NUMBERED, ("id", *HEADER), 1, "classify"),
        (PAIRS, ("source", "target"), 0, "translate"),
        (STARS, ("body", "stars"), 0, "regress"),
    ):
        cells = [[*row] for row in (header, *rows)]
        cells[begin][column] = '"' + cells[begin][column]
        cells[end][column] += '"'
        content, how = table([tuple(row) for row in cells], None, delimiter), {"task": task, "delimiter": delimiter}
        issues = [issue for issue in read(tmp_path, content, **how).report.errors if issue.kind == "quote"]
        assert [issue.line for issue in issues] == [begin + 1]
        assert f"lines {begin + 1} to {end + 1}" in issues[0].message and "--quotes no" in issues[0].message
        assert not begin or len(read(tmp_path, content, quotes="no", **how).examples) == 24


@for_each(
    "text",
    [
        "Dear John,\nthe shoes came, both, thank you\nMary",
        "Shall I buy it? Well, pos\nor neg, who knows, neg\nor neither",
        "def f(a,b):\n    return g(a,b)",
    ],
)
def test_a_text_of_several_lines_is_a_text(tmp_path, text):
    rows = [(f"{i} {text}", label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, written([HEADER, *rows]))
    assert found.examples == sorted(rows) and found.noted("24 quoted fields of several lines")


def test_a_text_that_is_a_table_needs_quotes_everywhere_or_a_flag(tmp_path):
    rows = [*ROWS, ("a,pos\nb,neg\nc", "pos")]
    assert "--quotes yes" in read(tmp_path, written([HEADER, *rows])).message
    assert read(tmp_path, written([HEADER, *rows]), quotes="yes").examples == sorted(rows)
    assert read(tmp_path, written([HEADER, *rows], quoting=csv.QUOTE_ALL)).examples == sorted(rows)


@pytest.mark.parametrize("text", ['"the shoe {}"', '"the" shoe and "{}"', '"shoe {}', 'shoe {}"', 'a 5" shoe {}'])
def test_quotes_in_a_tsv_are_characters(tmp_path, text):
    rows = [(text.format(i), label) for i, (_, label) in enumerate(ROWS)]
    found = read(tmp_path, table(rows, HEADER, "\t"), "a.tsv")
    assert found.examples == sorted(rows)
    assert found.noted("24 fields in quotes", "--quotes yes") == (text[0] == text[-1] == '"')
    assert read(tmp_path, written([HEADER, *rows], "\t"), "a.tsv", quotes="yes").examples == sorted(rows)


LINES = ["sep=;", "SEP=;", '"sep=;"', "sep=;;", "sep=,", "sep=\t", "sep=\\t", "sep=|", "\ufeffsep=;", '\ufeff"sep=;"']


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@for_each("line", LINES)
@for_each("end", ["\n", "\r\n"])
def test_a_line_that_names_the_delimiter_is_obeyed_and_left_out(tmp_path, name, line, end):
    delimiter = line.lstrip('\ufeff"')[4].replace("\\", "\t")
    found = read(tmp_path, line + end + table(ROWS, HEADER, delimiter).replace("\n", end), name)
    assert found.examples == sorted(ROWS)
    assert found.noted("as its first line says") and found.report.counts["lines that name the delimiter"] == 1


@for_each("content", ["sep=;\n" + table([row[:1] for row in ROWS], ("text",)), "\nsep=;\n" + "\n".join(TEXTS)])
def test_it_may_stand_above_one_column(tmp_path, content):
    assert [text for text, _ in read(tmp_path, content, task="pretrain").examples] == sorted(TEXTS)


# --- encodings -------------------------------------------------------------------------------------------------


@for_each("encoding", ["cp1252", "utf-16", "shift_jis"])
def test_another_encoding_is_one_error_and_a_flag(tmp_path, encoding):
    word = "映画" if encoding == "shift_jis" else "très bon"
    rows = [(f"{word} {i}", label) for i, (_, label) in enumerate(ROWS)]
    content = table(rows, HEADER).encode(encoding)
    found = read(tmp_path, content)
    assert "--encoding" in found.message and len(found.report.errors) == 1
    assert read(tmp_path, content, encoding=encoding).examples == sorted(rows)
    for name in ("latin-9000", "rot13"):
        assert f"there is no encoding {name!r}" in read(tmp_path, content, encoding=name).message


def test_marks_in_json_lines_and_in_text(tmp_path):
    half = len(lines := json_lines("pos", "neg").splitlines()) // 2
    found = read(tmp_path, "\ufeff" + "\n".join(lines[:half]) + "\n\ufeff" + "\n".join(lines[half:]), "a.jsonl")
    assert found.examples == sorted(ROWS) and found.report.counts["byte order marks"] == 2
    texts = read(tmp_path, "\ufeffone line\n\ufeff\ufefftwo lines\nthree lines\n", "a.txt", "pretrain")
    assert [text for text, _ in texts.examples] == ["one line", "three lines", "two lines"]
    running = read(tmp_path, "\ufeffone line\n\ufefftwo lines\n" * 20, "a.txt", "lm")
    assert "\ufeff" not in "".join(text for text, _ in running.examples)


# --- labels ----------------------------------------------------------------------------------------------------


NFD = unicodedata.normalize("NFD", "négatif")
SPELLED = [NFD, "né\u00adgatif", "négatif\u200b", "\u200dnégatif", "né\ufeffgatif", "négatif ", "\u00a0négatif"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@for_each("other", SPELLED)
def test_one_class_is_spelled_one_way(tmp_path, other, name):
    labels = ("négatif", other, "pos")
    of_table = table(reviews(*labels), HEADER, "\t" if name == "a.tsv" else ",")
    found = read(tmp_path, json_lines(*labels) if name == "a.jsonl" else of_table, name)
    assert found.classes == {"négatif", "pos"}
    assert found.report.counts["labels spelled another way"] == 8
    assert found.noted("8 labels were brought to NFC", "1 of them became one with another")


def test_joiners_of_scripts_that_need_them_stay(tmp_path):
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
def test_labels_that_look_alike_are_noted_and_stay_apart(tmp_path, group):
    assert similar_labels([*group, "neutral"]) == [group]
    found = read(tmp_path, table(reviews(*group[:2], "neutral"), HEADER, ";"))
    assert found.classes == {*group[:2], "neutral"}
    assert found.noted("differ in case, spaces, punctuation or number form alone", *map(repr, group[:2]))


@for_each("labels", [("1", "-1"), ("1", "10"), ("1", "1.5"), ("a1", "a1.0"), ("pos", "neg"), ("1.2.0", "1.2")])
def test_other_labels_are_not_alike(labels):
    assert similar_labels(labels) == []


def test_json_booleans_numbers_and_lists(tmp_path):
    found = read(tmp_path, json_lines(1, 1.0, 0, -0.0, 2.5), "a.jsonl")
    assert found.classes == {"0", "1", "2.5"}
    found = read(tmp_path, json_lines(True, False, "True"), "a.jsonl")
    assert found.classes == {"true", "false", "True"} and found.noted("'true'", "'True'")
    assert len(read(tmp_path, json_lines(["a"], ["b"]), "a.jsonl", "multilabel").examples) == 24


@for_each(
    "labels",
    [*(("1", "2", value) for value in ("None", "null", "NA", "n/a", "?", "unknown", "-1")), ("a", "b", "9999")],
)
def test_a_word_or_code_for_nothing_is_noted(tmp_path, labels):
    found = read(tmp_path, table(reviews(*labels), HEADER))
    assert found.noted("spelled as a missing value", f"{labels[2]!r} (8)")
    assert found.report.counts["labels spelled as a missing value"] == 8


def test_a_test_file_is_read_alike(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(table([("one", NFD), ("two", "pos\u200b")], HEADER), "utf-8")
    known = partial(CLASSIFY.check_rows, known=["négatif", "pos"])
    schema = DataSchema("classify", TASKS["classify"].schema.columns, check=known)
    assert load_test(schema, DataConfig(test_file=str(path))).answers == ["négatif", "pos"]
    path.write_text(table([("one", "Pos")], HEADER), "utf-8")
    with pytest.raises(DataError, match=r"t\.csv:2: label 'Pos' is not one of the training data's .négatif, pos"):
        load_test(schema, DataConfig(test_file=str(path)))

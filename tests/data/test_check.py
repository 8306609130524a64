"""Valid files pass; one injected defect is named with kind, file and line; the harmless is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.config import DataConfig, DatesConfig, FilesConfig
from glassformer.data.check import CheckReport, check_data
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS

WORD = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)
SENTENCE = st.lists(WORD, min_size=1, max_size=5).map(" ".join)
LABELS = ("ham", "spam")


HEADERS = {"csv": "text,label", "tsv": "text\tlabel", "pairs.tsv": "source\ttarget"}
FORMS: dict[str, tuple[Callable[[str, str], str], ...]] = {
    "csv": ('"{}, he said","{}"'.format,),
    "tsv": ("{}\t{}".format,),
    "jsonl": (lambda text, label: json.dumps({"text": text, "label": label}),),
    "pairs.tsv": ("{}\t{}".format,),
    "pairs.jsonl": (lambda text, label: json.dumps({"src": text, "tgt": label}),),
    "parallel": (lambda text, label: text, lambda text, label: label),
    "txt": (lambda text, label: text,),
}
"""How an example is written in each form: one line of a table or of running text, or a line of each of two files."""


def valid_files(folder: Path, form: str, texts: list[str]) -> tuple[DataConfig, dict[Path, list[bytes]]]:
    """The same texts in a form, with a test part: the flags that name the files, and the lines of each."""
    rows = [(f"{text} {i}", LABELS[i % 2]) for i, text in enumerate(texts)]
    files, lines = dict[str, Any](), dict[Path, list[bytes]]()
    for part, first in (("train", 0), ("test", len(rows) // 2)):
        ends = ("src", "tgt") if form == "parallel" else (form.removeprefix("pairs."),)
        for end, write in zip(ends, FORMS[form], strict=True):
            path = folder / f"{part}.{end}"
            of_side = f"{end}_file" if part == "train" else f"test_{end}_file"
            files[of_side if form == "parallel" else f"{part}_file"] = str(path)
            written = [HEADERS[form]] if form in HEADERS else []
            written += [write(*row) for row in rows[first:]]
            lines[path] = [line.encode() for line in written]
    return DataConfig(files=FilesConfig(**files)), lines


def save(lines: dict[Path, list[bytes]]) -> None:
    for path, written in lines.items():
        path.write_bytes(b"".join(line + b"\n" for line in written))


DEFECTS = {
    "encoding": ([*FORMS], lambda line: b"caf\xe9 " + line),
    "nul": ([*FORMS], lambda line: line + b"\0"),
    "quote": (["csv"], lambda line: b'"never closed,spam'),
    "columns": ([*FORMS][:5], None),
    "json": (["jsonl", "pairs.jsonl"], lambda line: line[:-1]),
    "label": (["csv", "tsv", "jsonl"], lambda line: line.replace(b"spam", b"egg").replace(b"ham", b"egg")),
    "line counts": (["parallel"], None),
}


def inject(lines: list[bytes], kind: str, form: str, row: int) -> int:
    """Spoil one line of a file; the number of the line that must be named."""
    if kind == "line counts":
        del lines[-1]
        return len(lines) + 1
    if kind == "columns":
        fewer = {"csv": b"alone", "tsv": b"alone", "jsonl": b'{"text": "alone"}', "pairs.tsv": b"a\tb\tc"}
        lines[row] = fewer.get(form, b'{"src": 3, "tgt": "three"}')
    else:
        lines[row] = DEFECTS[kind][1](lines[row])
    return row + 1


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind, (forms, _) in DEFECTS.items() for form in forms])
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(SENTENCE, min_size=8, max_size=20), data=st.data())
def test_one_defect_is_named_with_kind_file_and_line(tmp_path, kind, form, texts, data):
    config, lines = valid_files(tmp_path, form, texts)
    schema = TASKS["lm" if form == "txt" else "translate" if form[0] == "p" else "classify"].schema
    save(lines)
    assert check_data(schema, config).errors == []

    # an unknown label is one that training does not have, so it can only be in the test part
    candidates = [path for path in lines if kind != "label" or path.stem == "test"]
    path = data.draw(st.sampled_from(candidates))
    line = inject(lines[path], kind, form, data.draw(st.integers(1, len(lines[path]) - 1)))
    save(lines)
    report = check_data(schema, config)
    assert not report.ok and report.n_errors == len(report.errors) == 1
    [problem] = report.errors
    assert (problem.kind, problem.line) == (kind, line)
    if kind == "line counts":
        counted = {str(len(lines[p])) for p in lines if p.stem == path.stem}
        assert Path(problem.path).stem == path.stem
        assert all(count in problem.message for count in counted)
    else:
        assert problem.path == str(path)
    with pytest.raises(DataError) as caught:
        load_text_data(schema, config)
    assert f"{problem.path}:{line}" in caught.value.message


def checked(task: str, **files: Path) -> CheckReport:
    names: dict[str, Any] = {name: str(path) for name, path in files.items()}
    return check_data(TASKS[task].schema, DataConfig(files=FilesConfig(**names)))


def test_all_problems_of_all_files_are_told_at_once(tmp_path):
    train, test = tmp_path / "a.csv", tmp_path / "t.csv"
    train.write_bytes(b"text,label\nok,a\n\xff,b\nthree,col,umns\nfine,b\n")
    test.write_bytes(b"text,label\nok,c\nok,\n")
    report = checked("classify", train_file=train, test_file=test)
    assert [(Path(p.path).name, p.line, p.kind) for p in report.errors] == [
        ("a.csv", 3, "encoding"),
        ("t.csv", 3, "label"),
    ], "of a file with such a byte nothing more, and no answer is unknown"


def test_harmless_things_are_counted_and_load(tmp_path):
    path, test = tmp_path / "a.csv", tmp_path / "t.csv"
    path.write_bytes("\ufefftext,label\r\none,a\r\none,a\r\n\r\n ,b\r\ntwo,b\r\n".encode())
    test.write_bytes(b"text,label\ntwo,a\nthree,b\n")
    report = checked("classify", train_file=path, test_file=test)
    assert report.ok
    assert report.counts == {
        "byte order marks": 1,
        "CRLF line ends": 6,
        "empty lines": 1,
        "train: empty": 1,
        "train: duplicates": 1,
        "test: also in training": 1,
    }
    assert report.sizes == {"train": 4, "test": 2}
    assert report.n_errors == 0


def test_pairs_with_an_empty_side_are_counted(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\tx\n\ty\nc\t \nd\tz\n")
    assert checked("translate", train_file=path).counts == {"train: empty": 2}


def test_one_label_only_and_a_missing_file_are_problems_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\none,a\ntwo,a\n")
    report = checked("classify", train_file=path, test_file=tmp_path / "none.csv")
    assert [(p.kind, Path(p.path).name) for p in report.errors] == [("missing", "none.csv"), ("label", "a.csv")]
    assert report.errors[1].message.startswith("two or more labels")


def test_a_quote_left_open_names_the_row_it_opens_in_even_if_a_later_one_ends_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,label\none,a\n"two,b\nthree,a\n"four",b\n')
    [problem] = checked("classify", train_file=path).errors
    assert (problem.kind, problem.line) == ("quote", 3)
    assert "line 5" in problem.message


@pytest.mark.parametrize(("escaped", "kind"), [("\\ud800", "encoding"), ("\\u0000", "nul")])
def test_what_json_can_escape_but_text_cannot_hold(tmp_path, escaped, kind):
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "fine", "label": 1}', '{"text": "' + escaped + '", "label": 0}', '{"text": "", "label": 0}']
    path.write_text("\n".join(lines), encoding="utf-8")
    report = checked("classify", train_file=path)
    assert [(p.kind, p.line) for p in report.errors] == [(kind, 2)]


def test_a_built_in_data_set_is_counted():
    report = check_data(TASKS["translate"].schema, DataConfig(dataset="dates", dates=DatesConfig(n_dates=500)))
    assert report.ok and report.sizes["train"] == 500
    assert "test: also in training" not in report.counts


def test_empty_texts_and_missing_labels_are_counted_apart(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nok,a\n,a\ngood one,b\nbad,\n", encoding="utf-8")
    report = checked("classify", train_file=path)
    assert report.counts["train: empty"] == 1
    assert [(p.line, p.message) for p in report.errors] == [(5, "the label is empty")]


def test_a_number_is_a_place_and_never_a_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("2,1\n" + "".join(f"{'ab'[i % 2]},the text {i}\n" for i in range(20)), encoding="utf-8")
    files = FilesConfig(train_file=str(path), text_column="2", label_column="1", header="yes")
    assert {*load_text_data(TASKS["classify"].schema, DataConfig(files=files)).train.answers} == {"a", "b"}
    with pytest.raises(UsageError, match="there is no column '3'"):
        load_text_data(
            TASKS["classify"].schema, DataConfig(files=FilesConfig(train_file=str(path), text_column="3", header="no"))
        )


def test_another_separator_of_labels_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    cells = ["food & drink, price", "room quality", "room quality, staff", "staff, price", "price"]
    rows = [json.dumps({"text": f"text {i}", "labels": cells[i % len(cells)]}) for i in range(20)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    report = checked("multilabel", train_file=path)
    [note] = [note for note in report.notes if "no text has more than one label" in note]
    assert "--label-separator" in note


def test_a_list_in_a_cell_holds_strings_and_numbers(tmp_path):
    path = tmp_path / "a.csv"
    for cell in ("null", '{""k"": 1}'):
        rows = ['a,"[""x"", 3, true]"', 'b,"[""y""]"', f'c,"[{cell}]"', "e,x;y"]
        path.write_text("text,labels\n" + "\n".join(rows * 3) + "\n", encoding="utf-8")
        [problem] = checked("multilabel", train_file=path).errors
        assert problem.line == 4 and "is a list of labels, which holds strings" in problem.message


def test_tags_that_are_spelled_alike_are_noted(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a NOUN\nb Noun\n\nc NOUN\nd X\u200b\n\n" * 12, encoding="utf-8")
    report = checked("tag", train_file=path)
    assert report.counts["labels spelled another way"] == 12
    assert any("'NOUN' (24), 'Noun' (12)" in note for note in report.notes)


@pytest.mark.parametrize(
    ("rows", "message"), [(["same,a", "same,b"], "nothing to validate on"), (None, "texts are the same")]
)
def test_check_data_reports_files_that_training_refuses(tmp_path, rows, message):
    train, valid = tmp_path / "train.csv", tmp_path / "valid.csv"
    train.write_text("\n".join(["text,label", *(rows or ["same,a", "same,b"])]), encoding="utf-8")
    valid.write_text("text,label\nother,a\nmore,b\n", encoding="utf-8")
    files = FilesConfig(train_file=str(train), valid_file=None if rows else str(valid))
    report = check_data(TASKS["classify"].schema, DataConfig(files=files))
    assert not report.ok and [issue.kind for issue in report.errors] == ["too little"]
    assert message in str(report.errors[0]) and str(report.errors[0]).count(str(train)) == 1

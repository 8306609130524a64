"""Valid files pass; one injected defect is named with kind, file and line; the harmless is counted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, data_of, small_run

from glassformer.config import Config, DataConfig
from glassformer.data.check import CheckReport, KnownData, check_data, unknown
from glassformer.data.corpus import RaggedArray
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import Split
from glassformer.errors import DataError
from glassformer.runs.records import SplitRecord
from glassformer.tasks import TASKS
from glassformer.training.preparation import Pace, describe_splits, n_texts_with_unknown, preflight

FORMS = {
    "a.csv": (["text,label"], '"{}, he said","{}"'),
    "a.tsv": (["text\tlabel"], "{}\t{}"),
    "a.jsonl": ([], '{{"text": "{}", "label": "{}"}}'),
    "pairs.tsv": (["source\ttarget"], "{}\t{}"),
    "pairs.jsonl": ([], '{{"src": "{}", "tgt": "{}"}}'),
    "src": ([], "{}"),
    "tgt": ([], "{1}"),
    "a.txt": ([], "{}"),
}
"""The header and an example in each form of file; the last but one are the two sides of pairs."""
FEWER = {
    "a.csv": "alone",
    "a.tsv": "alone",
    "a.jsonl": '{"text": "alone"}',
    "pairs.tsv": "a\tb\tc",
    "pairs.jsonl": "{}",
}


def lines_of(form: str) -> list[bytes]:
    header, row = FORMS[form]
    return [line.encode() for line in (*header, *(row.format(f"text é {i}", ("ham", "spam")[i % 2]) for i in range(9)))]


@pytest.mark.parametrize("form", FORMS)
@for_each("part", ["train", "test"])
@for_each("kind", ["encoding", "nul", "columns", "quote", "json", "line counts"])
def test_one_defect_is_named_with_kind_file_and_line(tmp_path: Path, form: str, part: str, kind: str) -> None:
    lines, sides = lines_of(form), ("src", "tgt") if form in ("src", "tgt") else ()
    wrong = {"encoding": b"caf\xe9 " + lines[4], "nul": lines[4] + b"\0", "columns": FEWER.get(form, "").encode()}
    wrong |= {"quote": b'"never closed,spam' * (form == "a.csv"), "json": lines[4][:-1] * form.endswith("jsonl")}
    if not (line := wrong.get(kind, b"")) and not (sides and kind == "line counts"):
        return
    flags = {f"{test}{side}_file": side for side in sides for test in ("", "test_")}
    flags = flags or {"train_file": form, "test_file": form}
    for name in (*sides, form):
        (tmp_path / name).write_bytes(b"\n".join(lines_of(name)))
    flags |= {("test_" * (part == "test") + f"{form}_file" if sides else f"{part}_file"): "spoiled" + Path(form).suffix}
    path = tmp_path / f"spoiled{Path(form).suffix}"
    path.write_bytes(b"\n".join([*lines[:4], line, *lines[5:]] if line else lines[1:]))
    data = DataConfig(**{flag: str(tmp_path / name) for flag, name in flags.items()})
    schema = TASKS["lm" if form == "a.txt" else "translate" if sides or form[0] == "p" else "classify"].schema
    report = check_data(schema, data)
    [problem] = report.errors
    assert not report.ok and report.n_errors == 1 and (problem.kind, problem.line) == (kind, 5 if line else 0)
    counts = " ".join(re.findall(r"\b[89]\b", problem.message))
    assert problem.path == str(path) if line else counts in ("8 9", "9 8")
    with pytest.raises(DataError) as caught:
        load_text_data(schema, data)
    assert f"{problem.path}:{problem.line or ''}" in caught.value.message


def checked(task: str, **files: Path) -> CheckReport:
    names: dict[str, Any] = {name: str(path) for name, path in files.items()}
    return check_data(TASKS[task].schema, DataConfig(**names))


def test_problems_of_all_files_are_found_at_once(tmp_path):
    train, test, none, escaped = (tmp_path / name for name in ("a.csv", "t.csv", "none.csv", "a.jsonl"))
    train.write_bytes(b"text,label\nok,a\n\xff,b\nthree,col,umns\nfine,b\n")
    test.write_bytes(b"text,label\nok,c\nok,\n")
    report = checked("classify", train_file=train, test_file=test)
    found = [(Path(p.path).name, p.line, p.kind) for p in report.errors]
    assert found == [("a.csv", 3, "encoding"), ("t.csv", 3, "label")], "behind such a byte nothing, no answer unknown"
    train.write_bytes(b"text,label\none,a\ntwo,a\n")
    report = checked("classify", train_file=train, test_file=none)
    assert [(p.kind, Path(p.path).name) for p in report.errors] == [("missing", "none.csv"), ("label", "a.csv")]
    assert report.errors[1].message.startswith("two or more labels")
    for text, kind in (("\\ud800", "encoding"), ("\\u0000", "nul")):  # what JSON can escape and text cannot hold
        lines = ['{"text": "fine", "label": 1}', '{"text": "' + text + '", "label": 0}', '{"text": "", "label": 0}']
        escaped.write_text("\n".join(lines), encoding="utf-8")
        assert [(p.kind, p.line) for p in checked("classify", train_file=escaped).errors] == [(kind, 2)]


def test_harmless_things_are_counted_and_load(tmp_path):
    path, test = tmp_path / "a.csv", tmp_path / "t.csv"
    path.write_bytes("\ufefftext,label\r\none,a\r\none,a\r\n\r\n ,b\r\ntwo,b\r\n".encode())
    test.write_bytes(b"text,label\ntwo,a\nthree,b\n")
    report = checked("classify", train_file=path, test_file=test)
    of_files = {"byte order marks": 1, "CRLF line ends": 6, "empty lines": 1}
    of_parts = {"train: empty": 1, "train: duplicates": 1, "test: also in training": 1}
    assert report.ok and report.n_errors == 0 and report.counts == of_files | of_parts
    assert report.sizes == {"train": 4, "test": 2}


def test_a_built_in_data_set_is_counted():
    report = check_data(TASKS["translate"].schema, DataConfig(dataset="dates", n_dates=500))
    assert report.ok and report.sizes["train"] == 500
    assert "test: also in training" not in report.counts


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
    files = DataConfig(train_file=str(train), valid_file=None if rows else str(valid))
    report = check_data(TASKS["classify"].schema, files)
    assert not report.ok and [issue.kind for issue in report.errors] == ["too little"]
    assert message in str(report.errors[0]) and str(report.errors[0]).count(str(train)) == 1


PACE = Pace(0.01, 0.1, 1000.0, 0.1)
STRANGE = ["q r s", "a b c", "", "x a", "z"]
"""Of eight letters, five the training texts do not have, in three of five texts."""


@for_each("task", ["classify", "translate", "lm"])
def test_training_and_validation_say_how_much_of_it_is_unknown(task: str) -> None:
    data = data_of(task)
    answers = None if task == "lm" else [{"classify": "bad", "translate": "a"}[task]] * len(STRANGE)
    texts = [text.replace(" ", "") for text in STRANGE] if task == "translate" else STRANGE
    strange = Split(texts, answers, "strange")
    context = small_run(config_of(task), replace(data, valid=strange, test=strange)).context
    splits = describe_splits(context)
    assert splits["train"].unknown_rate == 0.0
    one, other = RaggedArray.from_lists([[1, 5], [], [1, 1], [7]]), RaggedArray.from_lists([[5], [1], [6], [6]])
    assert [n_texts_with_unknown(columns, 1) for columns in ([one], [one, other], [other])] == [2, 3, 1]
    assert (splits["valid"].unknown_rate or 0) > 0.05
    assert splits["valid"].n_texts_unknown == (None if task == "lm" else 3)
    assert splits["test"].unknown_rate is None, "the test part is not looked at"
    assert splits["test"].sha256 == splits["valid"].sha256 != splits["train"].sha256
    record = preflight(context, PACE, context.task.build_model())
    message = [finding for finding in record.findings if "unknown to the model" in finding.matter]
    assert len(message) == 1 and "--text.tokenizer byte-bpe" in message[0].remedy
    assert all(("in 3 of 5 texts" in finding.matter) == (task != "lm") for finding in message)
    assert record.splits == splits


@for_each(
    ("rate", "n_texts", "message"),
    [
        (0.0, 0, False),
        (None, None, False),
        (0.04, 15, False),
        (0.06, 15, True),
        (0.03, 30, True),
        (0.01, 90, False),
        (0.04, None, False),
        (0.3, None, True),
    ],
)
def test_a_noticeable_share_is_a_finding(rate: float | None, n_texts: int | None, message: bool) -> None:
    valid = SplitRecord(100, unknown_rate=rate, n_texts_unknown=n_texts)
    found = [*unknown(KnownData(Config(), {"train": valid, "valid": valid}))]
    assert len(found) == message
    if found and n_texts:
        assert f"in {n_texts} of 100 texts" in found[0].matter

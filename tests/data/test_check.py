"""Valid files pass; one injected defect is named with kind, file and line; the harmless is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
    return DataConfig(**files), lines


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
        return 0  # of the file as a whole
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
    assert f"{problem.path}:{line or ''}" in caught.value.message


def checked(task: str, **files: Path) -> CheckReport:
    names: dict[str, Any] = {name: str(path) for name, path in files.items()}
    return check_data(TASKS[task].schema, DataConfig(**names))


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


def test_one_label_only_and_a_missing_file_are_problems_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\none,a\ntwo,a\n")
    report = checked("classify", train_file=path, test_file=tmp_path / "none.csv")
    assert [(p.kind, Path(p.path).name) for p in report.errors] == [("missing", "none.csv"), ("label", "a.csv")]
    assert report.errors[1].message.startswith("two or more labels")


@pytest.mark.parametrize(("escaped", "kind"), [("\\ud800", "encoding"), ("\\u0000", "nul")])
def test_what_json_can_escape_but_text_cannot_hold(tmp_path, escaped, kind):
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "fine", "label": 1}', '{"text": "' + escaped + '", "label": 0}', '{"text": "", "label": 0}']
    path.write_text("\n".join(lines), encoding="utf-8")
    report = checked("classify", train_file=path)
    assert [(p.kind, p.line) for p in report.errors] == [(kind, 2)]


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

"""Own files load without a word of glue: columns found and announced, parts set aside by seed, text as it is."""

import gzip
import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, written
from tests.helpers.small import config_of, data_of, small_run

from glassformer.config import Config, DataConfig
from glassformer.data import diagnostics
from glassformer.data.check import CheckReport, KnownData, check_data, unknown
from glassformer.data.corpus import RaggedArray
from glassformer.data.datasets.labels import visible
from glassformer.data.datasets.local_files import load_test, load_text_data
from glassformer.data.diagnostics import MOST_OF_A_KIND, Diagnostics, numbered_lines, read_document
from glassformer.data.splits import Split, TextData
from glassformer.errors import DataError, UsageError
from glassformer.runs.records import SplitRecord
from glassformer.tasks import TASKS
from glassformer.training.preparation import Pace, describe_splits, n_texts_with_unknown, preflight

REVIEWS = [(f'review number {i}, it said "good"\nand more', ("pos", "neg")[i % 2]) for i in range(40)]
PAIRS = [(f'"Hello {i}," he said', f"„Hallo {i}“, sagte er") for i in range(30)]
CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff"), min_size=1, max_size=15)


def write(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


def examples(data) -> set[tuple[str, str]]:
    return {pair for part in (data.train, data.valid) for pair in zip(part.text, part.answers, strict=True)}


def load(task: str, split_seed: int = 0, **files: Any) -> TextData:
    return load_text_data(TASKS[task].schema, DataConfig(split_seed=split_seed, **files))


def test_a_table_is_read_by_the_columns_that_flags_name_and_a_share_is_set_aside(tmp_path):
    rows = [(i, "de", b, a) for i, (a, b) in enumerate(REVIEWS)]
    path = write(tmp_path / "a.csv", written([("nr", "lang", "urteil", "meinung"), *rows]))
    columns = {"text_column": "meinung", "label_column": "urteil"}
    data, again, other = (load("classify", seed, train_file=path, **columns) for seed in (0, 0, 1))
    assert TASKS["classify"].classes_of(data.train) == ["neg", "pos"]
    assert examples(data) == set(REVIEWS) and data.test is None
    assert (data.train, data.valid) == (again.train, again.valid) and data.valid != other.valid
    assert any("text is column" in note and "first example" in note for note in data.notes)
    assert any("validation: 4 of 40" in note for note in data.notes)
    assert list(data.hashes) == [Path(path).as_posix()]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELL, st.sampled_from(["a", "b", " c "])), min_size=3, max_size=12))
def test_any_csv_that_python_writes_is_read_back(tmp_path, rows):
    labels = {label.strip() for _, label in rows}
    path = write(tmp_path / "a.csv", written([("text", "label"), *rows]))
    config = DataConfig(train_file=path, test_file=path, valid_file=path)
    if len(labels) < 2:
        with pytest.raises(DataError, match="two or more labels"):
            load_text_data(TASKS["classify"].schema, config)
        return
    data = load_text_data(TASKS["classify"].schema, config)
    kept = [visible(text) for text, _ in rows]
    assert data.test is not None and data.train.text == data.test.text == kept
    assert data.train.answer == [label.strip() for _, label in rows]


@for_each(
    ("labels", "classes"),
    [([*range(11)], [*map(str, range(11))]), *(([odd, 1], sorted([odd, "1"])) for odd in ("--5", "+", "9" * 5000))],
)
def test_numbers_are_labels_in_their_order_and_what_only_looks_like_one_is_a_name(labels, classes, tmp_path):
    rows = [json.dumps({"text": f"text {i}", "label": labels[i % len(labels)]}) for i in range(40)]
    data = load("classify", train_file=write(tmp_path / "a.jsonl", "\n".join(rows)))
    assert TASKS["classify"].classes_of(data.train) == classes


def test_pairs_of_json_lines_and_named_columns_are_read(tmp_path):
    lines = "\n".join(json.dumps({"n": 1, "src": a, "tgt": b}) for a, b in PAIRS)
    third = "".join(f"{a}\t{b}\tCC-BY\n" for a, b in PAIRS)
    for name, content, flags in (("a.jsonl", lines, {}), ("a.tsv", third, {"src_column": "1", "tgt_column": "2"})):
        data = load("translate", train_file=write(tmp_path / name, content), **flags)
        assert examples(data) == set(PAIRS) and len(data.valid) == 3


def test_parallel_files_and_a_part_of_their_own_keep_empty_lines_in_their_place(tmp_path):
    pairs = [*PAIRS, ("", "y"), ("c", "z")]
    src = write(tmp_path / "a.en", "".join(a + "\n" for a, _ in pairs))
    tgt = write(tmp_path / "a.de", "".join(b + "\n" for _, b in pairs))
    data = load("translate", src_file=src, tgt_file=tgt, test_src_file=src, test_tgt_file=tgt)
    assert data.test is not None and list(zip(data.test.text, data.test.answers, strict=True)) == pairs
    assert set(data.hashes) == {Path(src).as_posix(), Path(tgt).as_posix()}
    files = DataConfig(test_src_file=src, test_tgt_file=tgt)
    assert load_test(TASKS["translate"].schema, files) == data.test


@for_each(
    ("task", "files", "message"),
    [
        ("classify", {}, "no training data"),
        ("classify", {"train_file": "a.csv", "test_src_file": "a", "test_tgt_file": "b"}, "are for translating"),
        ("translate", {"src_file": "a"}, "without --tgt-file"),
        ("translate", {"train_file": "a.tsv", "src_file": "a", "tgt_file": "b"}, "both a table"),
        ("translate", {"train_file": "a.tsv", "valid_tgt_file": "b"}, "without --valid-src-file"),
        ("lm", {}, "no training data"),
    ],
)
def test_flags_that_do_not_go_together(task, files, message):
    with pytest.raises(UsageError, match=message):
        load(task, **files)
    with pytest.raises(UsageError, match="there is nothing to score"):
        load_test(TASKS[task].schema, DataConfig())


@for_each(
    ("name", "content", "task", "kind", "message"),
    [
        ("a.x", "x", "classify", UsageError, r"\.csv, \.tsv or \.jsonl"),
        ("a.csv", "text,label\n", "classify", DataError, "no example"),
        ("b.txt", "ab", "lm", DataError, "too little text"),
        ("", "", "lm", DataError, r"no \.txt file"),
    ],
)
def test_what_holds_nothing_to_learn_is_refused(name, content, task, kind, message, tmp_path):
    folder = tmp_path / str(len(name + content))
    folder.mkdir()
    with pytest.raises(kind, match=message):
        load(task, train_file=write(folder / name, content) if name else str(folder))


def test_one_text_file_is_cut_in_three_at_its_end(tmp_path):
    book = "".join(f"line {i}\n" for i in range(1000))
    data = load("lm", train_file=write(tmp_path / "b.txt", book))
    assert data.test is not None
    assert data.train.text[0] + data.valid.text[0] + data.test.text[0] == book
    assert abs(len(data.test.text[0]) - len(book) / 10) < 2
    assert abs(len(data.valid.text[0]) - len(book) / 10) < 2
    assert any("set aside at the end" in note for note in data.notes)


def test_a_text_file_with_parts_of_its_own_is_left_whole(tmp_path):
    book, test = write(tmp_path / "b.txt", "word " * 100), write(tmp_path / "t.txt", "end")
    data = load("lm", train_file=book, test_file=test)
    assert data.test is not None and data.test.text == ["end"]
    assert data.train.text[0] + data.valid.text[0] == "word " * 100
    data = load("lm", train_file=book, valid_file=test)
    assert (data.train.text, data.valid.text, data.test) == (["word " * 100], ["end"], None)
    assert load_test(TASKS["lm"].schema, DataConfig(test_file=test)).text == ["end"]


@pytest.mark.parametrize("n_files", [3, 20])
def test_a_folder_of_text_files_is_parted_without_losing_a_character(tmp_path, n_files):
    (tmp_path / "below").mkdir()
    texts = [f"document {i} " * 20 for i in range(n_files)]
    for i, text in enumerate(texts):
        write(tmp_path / ("below" if i % 2 else ".") / f"{i:02}.txt", text)
    write(tmp_path / "notes.md", "not a text of this folder")
    data = load("lm", train_file=str(tmp_path))
    assert data.test is not None
    parts = [data.train.text, data.valid.text, data.test.text]
    assert sum(len(t) for part in parts for t in part) == sum(map(len, texts))
    if n_files >= 10:
        assert [len(part) for part in parts] == [16, 2, 2]
        assert sorted(t for part in parts for t in part) == sorted(texts)
    assert len(data.hashes) == n_files


# Files of text: split at "\n" alone, strict UTF-8, folders, gzip; what is none is named with its line


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"), max_size=20)
CSV = "text,label\n" + "".join(f"film {i},{('neg', 'pos')[i % 2]}\n" for i in range(20))
JSONL = "".join(json.dumps({"text": f"film {i}", "label": "np"[i % 2]}) + "\n" for i in range(20))
TEXT = "".join(f"Once upon a time, there was text {i}.\n" for i in range(20))


def read_lines(path: Path, found: Diagnostics) -> list[str]:
    return [line for _, line in numbered_lines(path, found)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, min_size=1), bom=st.booleans(), crlf=st.booleans(), final=st.booleans())
def test_any_lines_come_back(tmp_path, lines, bom, crlf, final):
    ending, path, found = "\r\n" if crlf else "\n", tmp_path / "a.txt", Diagnostics()
    final = final or lines[-1] == ""  # an empty last line exists only by its end
    data = ("\ufeff" * bom + ending.join(lines) + ending * final).encode()
    path.write_bytes(data)
    assert read_lines(path, found) == lines and not found.issues
    assert found.counts["byte order marks"] == bom
    assert found.counts["CRLF line ends"] == (len(lines) - (not final) if crlf else 0)
    assert found.hashes == {path.as_posix(): hashlib.sha256(data).hexdigest()}
    assert read_document(path, Diagnostics()) == "\n".join(lines) + "\n" * final


@for_each(
    ("data", "line", "kind"),
    [
        (b"good\nb\xe4d\ngood\n", 2, "encoding"),
        (b"good\ngood\nno\0\n", 3, "nul"),
        ("text".encode("utf-16"), 1, "encoding"),
        (b"", 0, "empty file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, data, line, kind):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    for reader in (read_lines, read_document) if data else (read_lines,):
        found = Diagnostics()
        assert not (reader(path, found) and reader is read_document)
        assert [(p.path, p.line, p.kind) for p in found.issues] == [(str(path), line, kind)]


@for_each("data", [b"PAR1\x15\x04", b"PK\x03\x04\x14\0"])
def test_a_table_of_another_kind_under_this_name_is_called_so(tmp_path, data):
    assert "is no text: Parquet, or a workbook" in read(tmp_path, data).message


def test_the_first_of_many_problems_is_raised_and_the_others_counted(tmp_path):
    found = Diagnostics()
    for line in range(2, 3002):
        found.error(tmp_path / "a.txt", line, "nul", "byte 1 of the line is NUL")
    assert len(found.issues) == MOST_OF_A_KIND
    with pytest.raises(DataError, match=r"a\.txt:2: .*\(and 2,999 more problems\)"):
        found.raise_if_any()
    Diagnostics().raise_if_any()


@for_each("task", ["lm", "pretrain"])
def test_a_folder_is_read_whole_and_the_rest_is_named(task, tmp_path_factory):
    """Text under unusual names and behind links; other files are counted."""
    path = tmp_path_factory.mktemp(task) / "folder"
    (path / "sub").mkdir(parents=True)
    (path.parent / "outside").mkdir()
    (path / "BOOK.TXT").write_text(TEXT)
    (path / "sub" / "part.Txt.GZ").write_bytes(gzip.compress(b"second text, compressed\n", mtime=0))
    (path.parent / "outside" / "linked.txt").write_text("third text, behind a link\n")
    (path / "readme.md").write_text("no text")
    for link, target in {"link": "../outside", "again": "sub", "sub/up": "..", "dangling": "nowhere.txt"}.items():
        (path / link).symlink_to(target)
    found = read(path, TEXT, "BOOK.TXT", task, train_file=str(path)).report
    assert found.ok and found.counts["other files not read"] == 5
    assert any("5 other files not read (again, dangling, link, …)" in note for note in found.notes)
    assert found.sizes["train"] == (len(TEXT) + 24 if task == "lm" else 21)


OTHERS = [("a.jsonl", JSONL), ("a.CSV", CSV), ("a.tsv", CSV), ("a.json", "[1]"), ("a.html", "<p>")]


@for_each(("name", "content"), OTHERS)
def test_what_is_no_running_text_is_refused(tmp_path, name, content):
    assert [issue.kind for issue in read(tmp_path, content, name, "lm").report.errors] == ["format"]
    assert not read(tmp_path, TEXT, "b.txt", "lm", valid_file=str(tmp_path / name)).report.ok


COMPRESSED = {"a.csv.gz": CSV, "A.JSONL.GZ": JSONL, "a.tsv.gz": CSV.replace(",", "\t"), "plain-name.csv": CSV}


@for_each(("name", "task"), [*((n, "classify") for n in COMPRESSED), ("a.txt.gz", "lm"), ("a.txt.gz", "pretrain")])
def test_gzip_is_read_as_what_is_in_it(tmp_path, name, task):
    data = gzip.compress(COMPRESSED.get(name, TEXT).encode())
    assert read(tmp_path, data, name, task).report.sizes == {"train": len(TEXT) if task == "lm" else 20}
    for damaged in (data[:-9], data[:40], data + b"junk"):
        [issue] = read(tmp_path, damaged, name, task).report.errors
        assert issue.kind == "gzip" and issue.line >= 1


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostics, "MAX_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text\n" * (1 << 19)))
    for reader in (read_document, read_lines):
        with pytest.raises(DataError, match="unpacks to more than"):
            reader(tmp_path / "a.txt.gz", Diagnostics())


@for_each(("name", "task"), [("a.csv", "classify"), ("a.txt", "pretrain"), ("b.txt", "lm")])
def test_a_pipe_is_refused(tmp_path, name, task):
    os.mkfifo(tmp_path / f"pipe-{name}")
    found = read(tmp_path, TEXT, name, task, train_file=str(tmp_path / f"pipe-{name}"))
    assert "a pipe or a device; write what it gives to a file" in found.message


NOTED = {JSONL: "its lines are JSON objects", TEXT: "", TEXT.replace("Once", "3 < 4 > 2"): ""}
NOTED[TEXT.replace("Once", "<p>Once")] = "hold markup"


@for_each("task", ["lm", "pretrain"])
@for_each(("content", "words"), NOTED.items())
def test_json_and_markup_named_txt_are_noted(task, content, words, tmp_path):
    for name in ("a.txt", "b.txt"):
        found = read(tmp_path, content, name, task, **({"train_file": str(tmp_path)} if name == "b.txt" else {})).report
        notes = [note for note in found.notes if "read as they are written" in note]
        assert len(notes) == bool(words) and all(words in note for note in notes)


# Valid files pass; one injected defect is named with kind, file and line; the harmless is counted


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
FEWER = {"a.csv": "one", "a.tsv": "one", "a.jsonl": '{"text": "one"}', "pairs.tsv": "a\tb\tc", "pairs.jsonl": "{}"}


def lines_of(form: str) -> list[bytes]:
    header, row = FORMS[form]
    return [line.encode() for line in (*header, *(row.format(f"text é {i}", ("ham", "spam")[i % 2]) for i in range(9)))]


@pytest.mark.parametrize("form", FORMS)
@for_each("part", ["train", "test"])
@for_each("kind", ["encoding", "nul", "columns", "quote", "json", "line counts"])
def test_one_defect_is_named_with_kind_file_and_line(tmp_path, form, part, kind):
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
    counts = " ".join(re.findall(r"\b[89]\b", problem.message.replace(str(tmp_path), "")))
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
        escaped.write_text("\n".join(lines), "utf-8")
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
    path.write_text("\n".join(rows) + "\n", "utf-8")
    report = checked("multilabel", train_file=path)
    [note] = [note for note in report.notes if "no text has more than one label" in note]
    assert "--label-separator" in note


def test_a_list_in_a_cell_holds_strings_and_numbers(tmp_path):
    path = tmp_path / "a.csv"
    for cell in ("null", '{""k"": 1}'):
        rows = ['a,"[""x"", 3, true]"', 'b,"[""y""]"', f'c,"[{cell}]"', "e,x;y"]
        path.write_text("text,labels\n" + "\n".join(rows * 3) + "\n", "utf-8")
        [problem] = checked("multilabel", train_file=path).errors
        assert problem.line == 4 and "is a list of labels, which holds strings" in problem.message


def test_tags_that_are_spelled_alike_are_noted(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a NOUN\nb Noun\n\nc NOUN\nd X\u200b\n\n" * 12, "utf-8")
    report = checked("tag", train_file=path)
    assert report.counts["labels spelled another way"] == 12
    assert any("'NOUN' (24), 'Noun' (12)" in note for note in report.notes)


@pytest.mark.parametrize(
    ("rows", "message"), [(["same,a", "same,b"], "nothing to validate on"), (None, "texts are the same")]
)
def test_check_data_reports_files_that_training_refuses(tmp_path, rows, message):
    train, valid = tmp_path / "train.csv", tmp_path / "valid.csv"
    train.write_text("\n".join(["text,label", *(rows or ["same,a", "same,b"])]), "utf-8")
    valid.write_text("text,label\nother,a\nmore,b\n", "utf-8")
    files = DataConfig(train_file=str(train), valid_file=None if rows else str(valid))
    report = check_data(TASKS["classify"].schema, files)
    assert not report.ok and [issue.kind for issue in report.errors] == ["too little"]
    assert message in str(report.errors[0]) and str(report.errors[0]).count(str(train)) == 1


PACE = Pace(0.01, 0.1, 1000.0, 0.1)
STRANGE = ["q r s", "a b c", "", "x a", "z"]
"""Of eight letters, five the training texts do not have, in three of five texts."""


@for_each("task", ["classify", "translate", "lm"])
def test_training_and_validation_say_how_much_of_it_is_unknown(task):
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


NOT_NOTICEABLE = [(0.0, 0), (None, None), (0.04, 15), (0.01, 90), (0.04, None)]


@for_each(("rate", "n_texts"), [*NOT_NOTICEABLE, (0.06, 15), (0.03, 30), (0.3, None)])
def test_a_noticeable_share_is_a_finding(rate, n_texts):
    valid = SplitRecord(100, unknown_rate=rate, n_texts_unknown=n_texts)
    found = [*unknown(KnownData(Config(), {"train": valid, "valid": valid}))]
    assert len(found) == ((rate, n_texts) not in NOT_NOTICEABLE)
    if found and n_texts:
        assert f"in {n_texts} of 100 texts" in found[0].matter

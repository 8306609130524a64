"""A person's own files load without a word of glue: columns found and announced, parts set aside by seed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from tests.helpers.reading import written

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.datasets.labels import visible
from glassformer.data.datasets.local_files import load_test, load_text_data
from glassformer.data.splits import Split
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS
from glassformer.tasks.heads import CLASSIFY

REVIEWS = [(f'review number {i}, it said "good"\nand more', ("pos", "neg")[i % 2]) for i in range(40)]
PAIRS = [(f'"Hello {i}," he said', f"„Hallo {i}“, sagte er") for i in range(30)]
CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff"), min_size=1, max_size=15)


def write(path: Path, text: str, encoding: str = "utf-8") -> str:
    path.write_bytes(text.encode(encoding))
    return str(path)


def examples(data) -> set[tuple[str, str]]:
    return {
        (text, label)
        for split in (data.train, data.valid)
        for text, label in zip(split.text, split.answers, strict=True)
    }


@pytest.mark.parametrize("form", ["jsonl", "odd names", "id and others"])
def test_classify_forms_give_the_same_examples(tmp_path, form):
    flags = {}
    match form:
        case "jsonl":
            rows = [json.dumps({"id": i, "text": a, "label": b}) for i, (a, b) in enumerate(REVIEWS)]
            path = write(tmp_path / "a.jsonl", "\n".join(rows) + "\n")
        case "odd names":
            path, flags = write(tmp_path / "a.csv", written([("meinung", "urteil"), *REVIEWS])), {"header": "yes"}
        case _:
            rows = [(i, "de", b, a) for i, (a, b) in enumerate(REVIEWS)]
            path = write(tmp_path / "a.csv", written([("nr", "lang", "urteil", "meinung"), *rows]))
            flags = {"text_column": "meinung", "label_column": "urteil"}
    data = load_text_data(TASKS["classify"].schema, DataConfig(files=FilesConfig(train_file=path, **flags)))
    assert TASKS["classify"].classes_of(data.train) == ["neg", "pos"]
    assert examples(data) == set(REVIEWS)
    assert data.test is None
    assert any("text is column" in note and "first example" in note for note in data.notes)
    assert any("validation: 4 of 40" in note for note in data.notes)
    assert list(data.hashes) == [Path(path).as_posix()]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELL, st.sampled_from(["a", "b", " c "])), min_size=3, max_size=12))
def test_any_csv_that_python_writes_is_read_back(tmp_path, rows):
    labels = {label.strip() for _, label in rows}
    path = write(tmp_path / "a.csv", written([("text", "label"), *rows]))
    config = DataConfig(files=FilesConfig(train_file=path, test_file=path, valid_file=path))
    if len(labels) < 2:
        with pytest.raises(DataError, match="two or more labels"):
            load_text_data(TASKS["classify"].schema, config)
        return
    data = load_text_data(TASKS["classify"].schema, config)
    kept = [visible(text) for text, _ in rows]
    assert data.test is not None and data.train.text == data.test.text == kept
    assert data.train.answer == [label.strip() for _, label in rows]


def test_numeric_labels_are_ordered_as_numbers_and_json_numbers_are_labels(tmp_path):
    rows = [json.dumps({"text": f"text {i}", "label": i % 11}) for i in range(40)]
    data = load_text_data(
        TASKS["classify"].schema, DataConfig(files=FilesConfig(train_file=write(tmp_path / "a.jsonl", "\n".join(rows))))
    )
    assert TASKS["classify"].classes_of(data.train) == [str(i) for i in range(11)]


@pytest.mark.parametrize("odd", ["--5", "+", "9" * 5000])
def test_labels_that_only_look_like_numbers_are_names(tmp_path, odd):
    rows = [(f"text {i}", [odd, "1"][i % 2]) for i in range(40)]
    path = write(tmp_path / "a.csv", written([("text", "label"), *rows]))
    data = load_text_data(TASKS["classify"].schema, DataConfig(files=FilesConfig(train_file=path)))
    assert TASKS["classify"].classes_of(data.train) == sorted([odd, "1"])


def test_a_test_label_unknown_to_training_is_named_with_its_line(tmp_path):
    train = write(tmp_path / "a.csv", written([("text", "label"), *REVIEWS]))
    test = write(tmp_path / "t.csv", "text,label\ngood,pos\nodd,maybe\n")
    with pytest.raises(DataError, match=r"t\.csv:3: label 'maybe' is not one of .*neg, pos"):
        load_text_data(TASKS["classify"].schema, DataConfig(files=FilesConfig(train_file=train, test_file=test)))
    with pytest.raises(DataError, match=r"t\.csv:3: label 'maybe'"):
        known = partial(CLASSIFY.check_rows, known=["neg", "pos"])
        load_test(replace(TASKS["classify"].schema, check=known), DataConfig(files=FilesConfig(test_file=test)))


def test_pairs_of_json_lines_and_named_columns_are_read(tmp_path):
    lines = "\n".join(json.dumps({"n": 1, "src": a, "tgt": b}) for a, b in PAIRS)
    third = "".join(f"{a}\t{b}\tCC-BY\n" for a, b in PAIRS)
    for path, flags in (("a.jsonl", {}), ("a.tsv", {"src_column": "1", "tgt_column": "2"})):
        file = write(tmp_path / path, lines if path == "a.jsonl" else third)
        data = load_text_data(TASKS["translate"].schema, DataConfig(files=FilesConfig(train_file=file, **flags)))
        found = {(a, b) for s in (data.train, data.valid) for a, b in zip(s.text, s.answers, strict=True)}
        assert found == set(PAIRS) and len(data.valid) == 3


def test_parallel_files_and_a_part_of_their_own(tmp_path):
    src = write(tmp_path / "a.en", "".join(a + "\n" for a, _ in PAIRS))
    tgt = write(tmp_path / "a.de", "".join(b + "\n" for _, b in PAIRS))
    config = DataConfig(files=FilesConfig(src_file=src, tgt_file=tgt, test_src_file=src, test_tgt_file=tgt))
    data = load_text_data(TASKS["translate"].schema, config)
    assert data.test is not None and list(zip(data.test.text, data.test.answers, strict=True)) == PAIRS
    assert set(data.hashes) == {Path(src).as_posix(), Path(tgt).as_posix()}
    scored = load_test(TASKS["translate"].schema, DataConfig(files=FilesConfig(src_file=src, tgt_file=tgt)))
    assert scored == Split([a for a, _ in PAIRS], [b for _, b in PAIRS], src)


def test_empty_lines_of_parallel_files_keep_their_place(tmp_path):
    src, tgt = write(tmp_path / "a.en", "a\n\nc\n"), write(tmp_path / "a.de", "x\ny\nz\n")
    split = load_test(TASKS["translate"].schema, DataConfig(files=FilesConfig(src_file=src, tgt_file=tgt)))
    assert list(zip(split.text, split.answers, strict=True)) == [("a", "x"), ("", "y"), ("c", "z")]


def test_equal_texts_are_never_on_both_sides_and_the_seed_decides(tmp_path):
    rows = [(f"text {i % 20}", ("a", "b")[i % 2]) for i in range(100)]
    path = write(tmp_path / "a.csv", written([("text", "label"), *rows]))
    first, again, other = (
        load_text_data(TASKS["classify"].schema, DataConfig(split_seed=seed, files=FilesConfig(train_file=path)))
        for seed in (0, 0, 1)
    )
    assert not set(first.train.text) & set(first.valid.text)
    assert len(first.valid) == 10
    assert (first.train, first.valid) == (again.train, again.valid)
    assert first.valid != other.valid


@for_each(
    ("task", "config", "message"),
    [
        ("classify", DataConfig(), "no training data"),
        ("classify", DataConfig(files=FilesConfig(src_file="a", tgt_file="b")), "for translating|no training data"),
        ("translate", DataConfig(files=FilesConfig(src_file="a")), "without --tgt-file"),
        ("translate", DataConfig(files=FilesConfig(train_file="a.tsv", src_file="a", tgt_file="b")), "both a table"),
        (
            "translate",
            DataConfig(files=FilesConfig(train_file="a.tsv", valid_tgt_file="b")),
            "without --valid-src-file",
        ),
        ("lm", DataConfig(), "no training data"),
    ],
)
def test_flags_that_do_not_go_together(task, config, message):
    with pytest.raises(UsageError, match=message):
        load_text_data(TASKS[task].schema, config)


def test_a_table_with_an_unknown_ending_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"\.csv, \.tsv or \.jsonl"):
        load_text_data(TASKS["classify"].schema, DataConfig(files=FilesConfig(train_file=write(tmp_path / "a.x", "x"))))


def test_a_table_of_nothing_but_its_header(tmp_path):
    with pytest.raises(DataError, match="no example"):
        load_text_data(
            TASKS["classify"].schema,
            DataConfig(files=FilesConfig(train_file=write(tmp_path / "a.csv", "text,label\n"))),
        )


def test_one_text_file_is_cut_in_three_at_its_end(tmp_path):
    book = "".join(f"line {i}\n" for i in range(1000))
    data = load_text_data(TASKS["lm"].schema, DataConfig(files=FilesConfig(train_file=write(tmp_path / "b.txt", book))))
    assert data.test is not None
    assert data.train.text[0] + data.valid.text[0] + data.test.text[0] == book
    assert abs(len(data.test.text[0]) - len(book) / 10) < 2
    assert abs(len(data.valid.text[0]) - len(book) / 10) < 2
    assert any("set aside at the end" in note for note in data.notes)


def test_a_text_file_with_parts_of_its_own_is_left_whole(tmp_path):
    book, test = write(tmp_path / "b.txt", "word " * 100), write(tmp_path / "t.txt", "end")
    data = load_text_data(TASKS["lm"].schema, DataConfig(files=FilesConfig(train_file=book, test_file=test)))
    assert data.test is not None and data.test.text == ["end"]
    assert data.train.text[0] + data.valid.text[0] == "word " * 100
    data = load_text_data(TASKS["lm"].schema, DataConfig(files=FilesConfig(train_file=book, valid_file=test)))
    assert (data.train.text, data.valid.text, data.test) == (["word " * 100], ["end"], None)
    assert load_test(TASKS["lm"].schema, DataConfig(files=FilesConfig(test_file=test))).text == ["end"]


@pytest.mark.parametrize("n_files", [3, 20])
def test_a_folder_of_text_files_is_parted_without_losing_a_character(tmp_path, n_files):
    (tmp_path / "below").mkdir()
    texts = [f"document {i} " * 20 for i in range(n_files)]
    for i, text in enumerate(texts):
        write(tmp_path / ("below" if i % 2 else ".") / f"{i:02}.txt", text)
    write(tmp_path / "notes.md", "not a text of this folder")
    data = load_text_data(TASKS["lm"].schema, DataConfig(files=FilesConfig(train_file=str(tmp_path))))
    assert data.test is not None
    parts = [data.train.text, data.valid.text, data.test.text]
    assert sum(len(t) for part in parts for t in part) == sum(map(len, texts))
    if n_files >= 10:
        assert [len(part) for part in parts] == [16, 2, 2]
        assert sorted(t for part in parts for t in part) == sorted(texts)
    assert len(data.hashes) == n_files


def test_too_little_text_and_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match=r"no \.txt file"):
        load_text_data(TASKS["lm"].schema, DataConfig(files=FilesConfig(train_file=str(tmp_path))))
    with pytest.raises(DataError, match="too little text"):
        load_text_data(TASKS["lm"].schema, DataConfig(files=FilesConfig(train_file=write(tmp_path / "b.txt", "ab"))))


def test_no_task_of_its_own_files_leaves_test_unnamed(tmp_path):
    for task in ("classify", "translate", "lm"):
        with pytest.raises(UsageError):
            load_test(TASKS[task].schema, DataConfig())

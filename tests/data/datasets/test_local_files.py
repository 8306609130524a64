"""A person's own files load without a word of glue: columns found and announced, parts set aside by seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from tests.helpers.reading import written

from glassformer.config import DataConfig
from glassformer.data.datasets.labels import visible
from glassformer.data.datasets.local_files import load_test, load_text_data
from glassformer.data.splits import TextData
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS

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

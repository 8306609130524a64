"""Training, evaluation and checks read Parquet, Arrow, and data sets of Hugging Face that were saved to disk."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.tiny_runs import SMALL

from glassformer.config import DataConfig, FilesConfig
from glassformer.config.recipes import recipe_for_files
from glassformer.data.datasets.columns import LABEL, SOURCE, TARGET, TEXT, DataSchema
from glassformer.data.datasets.local_files import load_test, load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS

pa = pytest.importorskip("pyarrow")
CLASSIFY = DataSchema("classify", (TEXT, LABEL))
TRANSLATE = DataSchema("translate", (SOURCE, TARGET), parallel=True)
PRETRAIN = DataSchema("pretrain", (TEXT,))
ROWS = [
    {"id": i, "text": f"a {'good' if i % 2 else 'bad'} film, number {i}", "label": i % 2, "raw": b"x", "tags": ["a"]}
    for i in range(40)
]
CLASSES = {
    b"huggingface": json.dumps({"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}})
}


def write(path: Path, table: Any) -> Path:
    """Write a table in the format of the name: Parquet, an Arrow file (.feather), or a stream (.arrow)."""
    import pyarrow.feather
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, str(path))
    else:
        pyarrow.parquet.write_table(table, path, row_group_size=9)
    return path


def save(folder: Path, table: Any, n_files: int = 1) -> Path:
    """Write a data set as `datasets` saves one to disk."""
    names = [f"data-{i:05}-of-{n_files:05}.arrow" for i in range(n_files)]
    share = -(-table.num_rows // n_files)
    for i, name in enumerate(names):
        write(folder / name, table.slice(i * share, share).replace_schema_metadata(CLASSES))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}), "utf-8")
    (folder / "dataset_info.json").write_text("{}", "utf-8")
    return folder


def save_splits(folder: Path, **splits: Any) -> Path:
    for name, table in splits.items():
        save(folder / name, table)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [*splits]}), "utf-8")
    return folder


def files(**names: Path | str) -> DataConfig:
    return DataConfig(files=FilesConfig(**{name: str(path) for name, path in names.items()}))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_a_file_of_columns_is_read_as_json_is(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", pa.Table.from_pylist(ROWS))
    plain = [{key: row[key] for key in ("id", "text", "label")} for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain), "utf-8")
    read = load_text_data(CLASSIFY, files(train_file=path))
    expected = load_text_data(CLASSIFY, files(train_file=tmp_path / "a.jsonl"))
    assert (read.train.text, read.train.answer) == (expected.train.text, expected.train.answer)
    assert [*read.hashes] == [path.as_posix()]
    assert load_text_data(PRETRAIN, files(train_file=path)).train.text


def test_a_gzip_of_each_text_format_is_read(tmp_path: Path) -> None:
    lines = "".join(f"{row['text'].replace(',', '')},{row['label']}\n" for row in ROWS)
    for name, data in {
        "a.csv.gz": "text,label\n" + lines,
        "a.tsv.gz": ("text,label\n" + lines).replace(",", "\t"),
        "a.jsonl.gz": "".join(json.dumps({"text": r["text"], "label": r["label"]}) + "\n" for r in ROWS),
    }.items():
        (tmp_path / name).write_bytes(gzip.compress(data.encode()))
        assert len(load_text_data(CLASSIFY, files(train_file=tmp_path / name)).train) == 36
    assert recipe_for_files([f"--train-file={tmp_path / 'a.csv.gz'}"], "x") == "classify"


def test_a_saved_data_set_is_read_with_the_names_of_its_classes(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", pa.Table.from_pylist(ROWS), n_files=3)
    read = load_text_data(CLASSIFY, files(train_file=folder))
    assert set(read.train.answers) == {"neg", "pos"} and len(read.train) + len(read.valid) == len(ROWS)
    assert {Path(name).name for name in read.hashes} == {
        "state.json",
        *(f"data-0000{i}-of-00003.arrow" for i in range(3)),
    }
    assert any("label has the classes neg, pos" in note for note in read.notes)
    with pytest.raises(UsageError, match="the files do not say what they are for"):
        recipe_for_files([f"--train-file={folder}"], "x")


def test_saved_splits_are_the_parts_of_the_data(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    folder = save_splits(tmp_path / "d", train=table[:20], validation=table[20:30], test=table[30:])
    read = load_text_data(CLASSIFY, files(train_file=folder))
    assert [len(part) for part in read.splits().values()] == [20, 10, 10]
    assert load_test(CLASSIFY, files(test_file=folder)).text == read.splits()["test"].text
    own = write(tmp_path / "own.parquet", table[:5])
    assert len(load_text_data(CLASSIFY, files(train_file=folder, test_file=own)).splits()["test"]) == 5
    few = save_splits(tmp_path / "few", train=table)
    read = load_text_data(CLASSIFY, files(train_file=few))
    assert [*read.splits()] == ["train", "valid"] and len(read.valid) == 4
    with pytest.raises(UsageError, match="this data set has no test split") as error:
        load_test(CLASSIFY, files(test_file=few))
    assert error.value.hint == "name the folder of one: train"


def test_pairs_of_translations_are_found(tmp_path: Path) -> None:
    rows = [{"id": i, "translation": {"en": f"word {i}", "de": f"Wort {i}"}} for i in range(20)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows))
    data = DataConfig(files=FilesConfig(train_file=str(path), src_column="de", tgt_column="en"))
    read = load_text_data(TRANSLATE, data)
    assert read.train.text[0].startswith("Wort") and read.train.answers[0].startswith("word")


def broken(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (broken([*ROWS[:3], {"text": None, "label": 1}]), "a.parquet, row 4: 'text' is null"),
        (broken([*ROWS[:3], {"text": "a", "label": None}]), "a.parquet, row 4: 'label' is null"),
        (broken([{"label": 1, "raw": b"x"}]), "2 columns are needed"),
        (broken(ROWS)[:0], "the file is empty"),
    ],
    ids=["text", "label", "columns", "empty"],
)
def test_what_is_wrong_is_reported_with_its_row(tmp_path: Path, table: Any, message: str) -> None:
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(DataError) as error:
        load_text_data(CLASSIFY, files(train_file=path))
    assert message in error.value.message


def test_a_class_without_a_name_is_no_label(tmp_path: Path) -> None:
    rows = [*ROWS[:5], {**ROWS[5], "label": -1}]
    folder = save(tmp_path / "saved", pa.Table.from_pylist(rows))
    with pytest.raises(DataError, match="saved, row 6: 'label' is null"):
        load_text_data(CLASSIFY, files(train_file=folder))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_data_files": [{"filename": "../a.arrow"}]}, "names no files of this folder"),
        ({"_data_files": 3}, "names no files of this folder"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "there is no such file"),
        ({"_data_files": [{"filename": "state.json"}]}, "this is no Parquet or Arrow file"),
        ({"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "i"}]}, "chosen by an index"),
    ],
    ids=str,
)
def test_a_saved_data_set_that_is_none(tmp_path: Path, state: dict[str, Any], message: str) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state), "utf-8")
    with pytest.raises(DataError) as error:
        load_text_data(CLASSIFY, files(train_file=tmp_path))
    assert message in error.value.message


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with a name")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="this is a pipe, and columns are read from a file"):
        load_text_data(CLASSIFY, files(train_file=tmp_path / "a.parquet"))


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(ROWS))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="this is no Parquet or Arrow file, or a damaged one"):
        load_text_data(CLASSIFY, files(train_file=path))
    with pytest.raises(DataError, match="there is no such file"):
        load_text_data(CLASSIFY, files(train_file=tmp_path / "gone.parquet"))


def test_a_run_knows_its_files_again(cli: Callable, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    folder = save_splits(tmp_path / "d", train=table[:20], validation=table[20:30], test=table[30:])
    run = tmp_path / "run"
    done = cli("train", "classify", "--train-file", folder, "--out", run, *SMALL)
    assert done.code == 0, done.err
    assert cli("evaluate", run, "--split", "valid").code == 0
    other = write(tmp_path / "other.parquet", table[:6].set_column(2, "label", pa.array(["neg", "pos"] * 3)))
    assert cli("evaluate", run, "--test-file", other).code == 0
    assert cli("data", "check", "classify", "--train-file", folder).code == 0
    save(folder / "test", table[31:])
    changed = cli("evaluate", run, "--split", "valid")
    assert changed.code == 3 and "changed since the run began" in changed.err


def test_lists_are_labels_of_a_text(tmp_path: Path) -> None:
    rows = [{"text": f"a film {i}", "labels": ["a", "b"][: i % 3]} for i in range(30)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows))
    assert {*load_text_data(TASKS["multilabel"].schema, files(train_file=path)).train.answers} == {"", "a", "a\nb"}

"""Training, evaluation and checks read Parquet and Arrow files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.tiny_runs import SMALL

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.datasets.columns import LABEL, TEXT, DataSchema
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError
from glassformer.tasks import TASKS

pa = pytest.importorskip("pyarrow")
CLASSIFY = DataSchema("classify", (TEXT, LABEL))
PRETRAIN = DataSchema("pretrain", (TEXT,))
ROWS = [
    {"id": i, "text": f"a {'good' if i % 2 else 'bad'} film, number {i}", "label": i % 2, "raw": b"x", "tags": ["a"]}
    for i in range(40)
]


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


def test_the_names_of_classes_are_read(tmp_path: Path) -> None:
    label, tags = {"names": ["neg", "pos"], "_type": "ClassLabel"}, {"names": ["O", "B-X"], "_type": "ClassLabel"}
    rows = [row | {"tokens": ["a", f"b{row['id']}"], "ner_tags": [0, 1]} for row in ROWS]
    for inner in ({"feature": tags, "_type": "List"}, [tags]):
        meta = {"huggingface": json.dumps({"info": {"features": {"label": label, "ner_tags": inner}}})}
        path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows).replace_schema_metadata(meta))
        read = load_text_data(CLASSIFY, files(train_file=path))
        assert {*read.train.answers} == {"neg", "pos"}
        assert any("label has the classes neg, pos" in note for note in read.notes)
        tagged = load_text_data(TASKS["tag"].schema, files(train_file=path, label_column="ner_tags"))
        assert {*tagged.train.answers} == {"O\nB-X"}
    unnamed = pa.Table.from_pylist([*rows[:5], {**rows[5], "label": -1}]).replace_schema_metadata(meta)
    with pytest.raises(DataError, match=r"a\.parquet, row 6: 'label' is null"):
        load_text_data(CLASSIFY, files(train_file=write(tmp_path / "a.parquet", unnamed)))


def test_a_column_of_another_type_is_named_and_refused_where_it_is_wanted(tmp_path: Path) -> None:
    days = [date(2024, 1, 1 + i % 9) for i in range(len(ROWS))]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(ROWS).append_column("day", [days]))
    assert (
        "a.parquet: raw is of the type binary, which is not read"
        in load_text_data(CLASSIFY, files(train_file=path)).notes
    )
    with pytest.raises(DataError, match=r"parquet, row 1: 'raw' is binary, which is not a string"):
        load_text_data(CLASSIFY, files(train_file=path, text_column="raw"))
    times = load_text_data(CLASSIFY, files(train_file=path, label_column="day")).train.answers
    assert "2024-01-01" in times


def test_decimal_numbers_are_numbers(tmp_path: Path) -> None:
    rows = [{"text": f"a film {i}", "price": Decimal(f"{i}.50")} for i in range(30)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows))
    assert "1.50" in load_text_data(TASKS["regress"].schema, files(train_file=path)).train.answers


@for_each("name", ["null.arrow", "dictionary.arrow", "dictionary.parquet"])
def test_what_unpacks_to_too_much_is_refused_at_once(tmp_path: Path, name: str) -> None:
    if name == "null.arrow":
        table = pa.table({"text": pa.nulls(2_000_000_000), "label": pa.nulls(2_000_000_000)})
    else:
        places = pa.array([0] * 30_000, pa.int32())
        table = pa.table({key: pa.DictionaryArray.from_arrays(places, ["x" * 100_000]) for key in ("text", "label")})
    if name.endswith("parquet"):
        write(tmp_path / name, table)
    else:
        with pa.ipc.new_file(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(DataError, match="unpacks to more than"):
        load_text_data(CLASSIFY, files(train_file=tmp_path / name))


def broken(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (broken([*ROWS[:3], {"text": None, "label": 1}]), "a.parquet, row 4: 'text' is null"),
        (broken([*ROWS[:3], {"text": "a", "label": None}]), "a.parquet, row 4: 'label' is null"),
        (broken([{"label": 1}]), "2 columns are needed"),
        (broken(ROWS)[:0], "the file is empty"),
    ],
    ids=["text", "label", "columns", "empty"],
)
def test_what_is_wrong_is_reported_with_its_row(tmp_path: Path, table: Any, message: str) -> None:
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(DataError) as error:
        load_text_data(CLASSIFY, files(train_file=path))
    assert message in error.value.message


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(ROWS))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="this is no Parquet or Arrow file, or a damaged one"):
        load_text_data(CLASSIFY, files(train_file=path))
    with pytest.raises(DataError, match="there is no such file"):
        load_text_data(CLASSIFY, files(train_file=tmp_path / "gone.parquet"))


def test_a_run_knows_its_files_again(cli: Callable, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    paths = [write(tmp_path / f"{i}.parquet", part) for i, part in enumerate((table[:20], table[20:30]))]
    run = tmp_path / "run"
    done = cli("train", "classify", "--train-file", paths[0], "--valid-file", paths[1], "--out", run, *SMALL)
    assert done.code == 0, done.err
    assert cli("evaluate", run, "--split", "valid").code == 0
    other = write(tmp_path / "other.parquet", table[:6])
    assert cli("evaluate", run, "--test-file", other).code == 0
    assert cli("data", "check", "classify", "--train-file", paths[0]).code == 0
    write(paths[1], table[31:])
    changed = cli("evaluate", run, "--split", "valid")
    assert changed.code == 3 and "changed since the run began" in changed.err


def test_lists_are_labels_of_a_text(tmp_path: Path) -> None:
    rows = [{"text": f"a film {i}", "labels": ["a", "b"][: i % 3]} for i in range(30)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows))
    assert {*load_text_data(TASKS["multilabel"].schema, files(train_file=path)).train.answers} == {"", "a", "a\nb"}

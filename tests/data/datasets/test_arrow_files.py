"""Training, evaluation and checks read Parquet and Arrow files."""

import gzip
import json
import struct
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.data.test_table_files import as_cells, scanned
from tests.data.test_table_files import write as write_answers

from glassformer.config import DataConfig
from glassformer.data import diagnostics
from glassformer.data.answered_table import InputTable
from glassformer.data.datasets import arrow_files
from glassformer.data.datasets.columns import LABEL, TEXT, DataSchema
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
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
    return DataConfig(**{name: str(path) for name, path in names.items()})


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_a_file_of_columns_is_read_as_json_is(tmp_path, suffix):
    path = write(tmp_path / f"a{suffix}", pa.Table.from_pylist(ROWS))
    plain = [{key: row[key] for key in ("id", "text", "label")} for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain), "utf-8")
    read = load_text_data(CLASSIFY, files(train_file=path))
    expected = load_text_data(CLASSIFY, files(train_file=tmp_path / "a.jsonl"))
    assert (read.train.text, read.train.answer) == (expected.train.text, expected.train.answer)
    assert [*read.hashes] == [path.as_posix()]
    assert load_text_data(PRETRAIN, files(train_file=path)).train.text


def test_the_names_of_classes_are_read(tmp_path):
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


def test_a_column_of_another_type_is_named_and_refused_where_it_is_wanted(tmp_path):
    days = [date(2024, 1, 1 + i % 9) for i in range(len(ROWS))]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(ROWS).append_column("day", [days]))
    notes = load_text_data(CLASSIFY, files(train_file=path)).notes
    assert "a.parquet: raw is of the type binary, which is not read" in notes
    with pytest.raises(DataError, match=r"parquet, row 1: 'raw' is binary, which is not a string"):
        load_text_data(CLASSIFY, files(train_file=path, text_column="raw"))
    times = load_text_data(CLASSIFY, files(train_file=path, label_column="day")).train.answers
    assert "2024-01-01" in times


def test_lists_are_labels_of_a_text(tmp_path):
    rows = [{"text": f"a film {i}", "labels": ["a", "b"][: i % 3]} for i in range(30)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows))
    assert {*load_text_data(TASKS["multilabel"].schema, files(train_file=path)).train.answers} == {"", "a", "a\nb"}


def test_each_type_of_a_column_becomes_text_or_json(tmp_path):
    kinds = {"at": pa.timestamp("ns"), "clock": pa.time64("ns"), "long": pa.duration("ns"), "day": pa.date32()}
    columns = {"text": pa.array([f"text {i % 7}" for i in range(300)]).dictionary_encode()}
    columns |= {name: pa.array([1] * 300, kind) for name, kind in kinds.items()}
    columns["price"] = pa.array([Decimal("1.20")] * 300)
    columns["vector"] = pa.array([[1.5, float(i)] for i in range(300)], pa.list_(pa.float32()))
    table = pa.table(columns | {"small": pa.array([None, 1, 2] * 100, pa.int8())})
    source = scanned(write(tmp_path / "a.parquet", table))
    rows = [json.loads(line) for line in answered(source, tmp_path / "b.jsonl").read_text("utf-8").splitlines()]
    times = {"at": "1970-01-01 00:00:00.000000001", "clock": "00:00:00.000000001", "long": "1", "day": "1970-01-02"}
    other = {"price": "1.20", "vector": [1.5, 1.0], "small": 1, "label": "x"}
    assert rows[1] == {"text": "text 1"} | times | other
    first = as_cells(scanned(answered(source, tmp_path / "b.csv")))[1]
    assert first == ["text 0", *times.values(), "1.20", "[1.5, 0.0]", "", "x"]
    raw = pa.array([None, [b"1"]] * 150, pa.list_(pa.binary()))
    with pytest.raises(DataError, match=r"a\.parquet: the column 'raw' is of the type list<element: binary>"):
        scanned(write(tmp_path / "a.parquet", table.append_column("raw", raw)))


def answered(table: InputTable, path: Path) -> Path:
    write_answers(table, path, [{"label": "x"}] * table.n_rows)
    return path


def not_utf8() -> Any:
    """Return a column of texts of which one is no UTF-8."""
    offsets = pa.py_buffer(struct.pack("<5i", 0, 1, 2, 3, 4))
    return pa.table({"text": pa.Array.from_buffers(pa.string(), 4, [None, offsets, pa.py_buffer(b"ab\xffd")])})


LARGE = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), ["x" * 10_000])
NO_FILE = "this is no Parquet or Arrow file, or a damaged one"
WRONG: dict[str, tuple[Any, str]] = {
    "text.parquet": (pa.Table.from_pylist([*ROWS[:3], {"text": None, "label": 1}]), "row 4: 'text' is null"),
    "label.parquet": (pa.Table.from_pylist([*ROWS[:3], {"text": "a", "label": None}]), "row 4: 'label' is null"),
    "columns.parquet": (pa.Table.from_pylist([{"label": 1}]), "2 columns are needed"),
    "empty.parquet": (pa.Table.from_pylist(ROWS)[:0], "the file is empty"),
    "bytes.parquet": (b"PAR1 and no more", NO_FILE),
    "bytes.arrow": (b"ARROW1 and no more", NO_FILE),
    "batch.arrow": (not_utf8(), NO_FILE),
    "nothing.feather": (pa.table({"text": pa.nulls(2_000_000), "label": pa.nulls(2_000_000)}), "unpacks to more than"),
    "dictionary.arrow": (pa.table({"text": LARGE, "label": LARGE}), "unpacks to more than"),
    "dictionary.parquet": (pa.table({"text": LARGE, "label": LARGE}), "unpacks to more than"),
    "large.parquet": (pa.table({"text": ["a" * 100_000] * 300, "label": ["b"] * 300}), "unpacks to more than"),
    "large.csv.gz": (gzip.compress(b"text,label\n" + b"a" * 1000 + b",1\n" + b"b,1\n" * 300_000), "unpacks to more"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_sentence(tmp_path, name, monkeypatch):
    for module in (arrow_files, diagnostics):
        monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1 << 20)
    content, message = WRONG[name]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        load_text_data(CLASSIFY, files(train_file=tmp_path / name))
    if name.startswith(("bytes", "batch", "large")):
        with pytest.raises(DataError, match=message):
            scanned(tmp_path / name)


def test_without_pyarrow_one_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="need the package pyarrow") as error:
        scanned(tmp_path / "a.parquet")
    assert error.value.hint == 'install it: pip install "glassformer[tables]"'

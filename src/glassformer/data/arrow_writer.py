"""A table with its answers as Parquet or Arrow: a columnar one keeps its schema, of another each column gets a type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from glassformer.data.datasets.arrow_files import BATCH_ROWS, pyarrow_for, schema_of
from glassformer.data.output_table import OutputTable, cell_text

ROWS_TOGETHER = 1 << 14
"""Rows of a group in Parquet, or of a batch in Arrow."""


def columnar_bytes(output: OutputTable, kind: str) -> Iterator[bytes]:
    """Yield the bytes of a file of the kind "parquet" or "arrow", at bounded memory.

    A column of JSON is text, numbers or truth values where all of its values are; otherwise it holds JSON as text.
    """
    pa = pyarrow_for(output.table.path)
    batches = _answered(pa, output) if output.table.is_columnar else _converted(pa, output)
    if kind == "arrow":
        batches = (_without_dictionaries(pa, batch) for batch in batches)
    first = next(batches)
    sink, schema = _Sink(), first.schema
    file = pa.PythonFile(sink, "w")
    writer = pa.parquet.ParquetWriter(file, schema) if kind == "parquet" else pa.ipc.new_file(file, schema)
    with writer:
        rest = itertools.chain([first], batches)
        while group := list(itertools.islice(rest, ROWS_TOGETHER // BATCH_ROWS)):
            table = pa.Table.from_batches(group, schema)
            writer.write_table(table if kind == "parquet" else table.combine_chunks())
            yield sink.take()
    yield sink.take()


class _Sink:
    """What pyarrow writes to: bytes that are taken away in between."""

    closed = False

    def __init__(self) -> None:
        self._chunks, self._size = list[bytes](), 0

    def write(self, data: Any) -> int:
        self._chunks.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: all was written."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        """Return what was written since the last call."""
        data, self._chunks = b"".join(self._chunks), []
        return data


def _answered(pa: Any, output: OutputTable) -> Iterator[Any]:
    """Yield the batches of a columnar table with the columns of the answers behind its own."""
    answers = iter(output.answers)
    schema = schema_of(output.table.path)
    types = _types_of(pa, output)
    for name in output.columns:
        schema = schema.append(pa.field(name, types[name]))
    for batch in output.table.batches():
        some = list(itertools.islice(answers, batch.num_rows))
        new = [_array(pa, types[name], name, [answer.get(name) for answer in some]) for name in output.columns]
        yield pa.RecordBatch.from_arrays([*batch.columns, *new], schema=schema)


def _converted(pa: Any, output: OutputTable) -> Iterator[Any]:
    """Yield the rows of a CSV, TSV or JSON Lines as batches."""
    types, rows = _types_of(pa, output), output.rows()
    schema = pa.schema([pa.field(name, types[name]) for name in output.names])
    while some := list(itertools.islice(rows, BATCH_ROWS)):
        columns = zip(output.names, zip(*some, strict=True), strict=True)
        arrays = [_array(pa, types[name], name, column) for name, column in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _types_of(pa: Any, output: OutputTable) -> dict[str, Any]:
    """Return the types of the columns that are made here, by name."""
    of_answers = {"integer": pa.int64(), "number": pa.float64(), "vector": pa.list_(pa.float64())}
    types = {name: of_answers.get(kind, pa.string()) for name, kind in output.columns.items()}
    for name in () if output.table.is_columnar else output.table.names:
        kinds = output.table.kinds.get(name, frozenset()) - {"null"}
        types[name] = pa.string()
        if kinds == {"boolean"}:
            types[name] = pa.bool_()
        elif kinds and kinds <= {"integer", "large integer"}:
            types[name] = pa.int64()
        elif kinds and kinds <= {"integer", "number"}:
            types[name] = pa.float64()
    return types


def _array(pa: Any, kind: Any, name: str, values: Sequence[Any]) -> Any:
    if kind == pa.string():
        values = [value if value is None else cell_text(value, name) for value in values]
    elif kind == pa.float64():
        values = [value if value is None else float(value) for value in values]
    return pa.array(values, kind)


def _without_dictionaries(pa: Any, batch: Any) -> Any:
    """Return a batch without dictionaries, of which an Arrow file holds one a column for all batches."""
    decodes = pa.types.is_dictionary
    columns = [column.dictionary_decode() if decodes(column.type) else column for column in batch.columns]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))

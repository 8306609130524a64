"""A table to answer row by row, and the table that is written: all its columns, and those of the answers behind them.

The table is read twice: once to find everything that is wrong in it, and then to be answered. What is written is read
back by `datasets/tables.py` as it was. A CSV has commas, and quotes where a field needs them; a TSV holds no field with
a tab or a line break. In Parquet and Arrow a columnar table keeps its types; of another all columns are text.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from glassformer.data.datasets.columns import (
    SAMPLE_ROWS,
    Columns,
    ColumnSpecs,
    below_header,
    choose_columns,
    row_values,
)
from glassformer.data.datasets.tables import read_rows
from glassformer.data.diagnostics import Diagnostics, TableForm, encoding_issue
from glassformer.data.sources import is_columnar, suffix_of, unreadable
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import json_line

FORMATS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json"} | {
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"
}  # fmt: skip
"""Formats by the suffix of a file's name; those of text may have .gz behind it."""


ABSENT: Any = object()
"""The value of a field that an object of JSON lacks."""


# --- what is read ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputTable:
    """A table that was read to its end without an error.

    Attributes:
        path: where it is.
        columns: those of the texts.
        names: all its columns in order, of JSON the keys of all objects; without a header column_1, column_2 …
        n_rows: rows below the header.
        notes: how it was read.
        specs: how the columns were looked for.
        form: how it is written, where flags say it.
    """

    path: Path
    columns: Columns
    names: tuple[str, ...]
    n_rows: int
    notes: list[str]
    specs: ColumnSpecs
    form: TableForm

    def rows(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield of each row the text, or the pair of two as one, and its values in the order of the names.

        Raises:
            DataError: the file is no longer what it was.
        """
        diagnostics, values = Diagnostics(form=self.form), None
        if is_columnar(self.path):  # whose other columns may be of any type
            from glassformer.data.datasets.arrow_files import python_rows, read_batches

            batches = read_batches(self.path, diagnostics)
            values = itertools.chain.from_iterable(python_rows(batch, self.path) for batch in batches)
        rows = below_header(self.path, read_rows(self.path, diagnostics), self.columns, diagnostics)
        for row in rows:
            text = row_values(row, self.columns, self.specs, self.path, diagnostics)
            if text is None:
                raise DataError(f"{self.path} changed while it was read", "give the command again when it is whole")
            fields = row.fields if values is None else next(values)
            yield text[0], fields if isinstance(fields, list) else [fields.get(name, ABSENT) for name in self.names]


def scan_table(path: Path, specs: ColumnSpecs, form: TableForm) -> InputTable:
    """Read a table to its end, and return what was found.

    Raises:
        DataError: something is wrong in it; with the file and the line.
        UsageError: its name does not show its format, a column is missing, or pyarrow is not installed.
    """
    if message := unreadable(path):
        raise DataError(f"{path}: {message}", "check the path")
    diagnostics = Diagnostics(form=form)
    rows = read_rows(path, diagnostics)
    sample = list(itertools.islice(rows, SAMPLE_ROWS))
    columns = choose_columns(path, sample, specs, diagnostics) if sample else None
    if columns is None:
        _refuse(path, diagnostics)
    first, n_rows = sample[0].fields, 0
    names = dict[str, None]()
    if is_columnar(path):
        from glassformer.data.datasets.arrow_files import schema_of

        names = dict.fromkeys(schema_of(path).names)
    for row in below_header(path, itertools.chain(sample, rows), columns, diagnostics):
        n_rows += row_values(row, columns, specs, path, diagnostics) is not None
        names.update(dict.fromkeys(row.fields if isinstance(row.fields, dict) else ()))
    if diagnostics.n_issues or not n_rows:
        _refuse(path, diagnostics)
    if n_empty := diagnostics.counts["empty lines"]:
        diagnostics.notes.append(f"{path.name}: {n_empty:,} empty line{'s are' if n_empty > 1 else ' is'} left out")
    found = tuple(first if columns.has_header else names or (f"column_{i + 1}" for i in range(columns.n_fields)))
    if double := next((name for name in found if found.count(name) > 1), None):
        raise DataError(f"{path}: several columns have one name ({double!r})", "give each column a name of its own")
    return InputTable(path, columns, found, n_rows, diagnostics.notes, specs, form)


def _refuse(path: Path, diagnostics: Diagnostics) -> NoReturn:
    if not diagnostics.n_issues:
        diagnostics.error(path, 0, "empty file", "there is no row in this file")
    more = diagnostics.n_issues - 1
    also = f" (and {more:,} more {'problem' if more == 1 else 'problems'})" if more else ""
    raise DataError(f"{diagnostics.issues[0]}{also}", "mend it and give the command again; nothing was written")


# --- what is written -------------------------------------------------------------------------------------------


def format_for(path: Path) -> str:
    """Return the format in which a table is written.

    Raises:
        UsageError: the file's name does not show one that is written.
    """
    found = FORMATS.get(suffix_of(path))
    if found is None or (found in ("parquet", "arrow") and path.suffix.lower() == ".gz"):
        raise UsageError(
            f"{path}: the name of a table ends in .csv, .tsv, .jsonl (or .gz behind it), .parquet or .arrow",
            "name the file after the format that it should have",
        )
    if found in ("parquet", "arrow"):
        from glassformer.data.datasets.arrow_files import pyarrow_for

        pyarrow_for(path)
    return found


def refuse_unwritable(table: InputTable, path: Path) -> None:
    """Raise DataError if the format of a file has no place for a value of a table, before anything is answered."""
    kind = format_for(path)
    if (table.columns.n_fields and kind != "tsv") or (is_columnar(table.path) and kind in ("parquet", "arrow")):
        return  # text goes anywhere else
    for number, (_, values) in enumerate(table.rows(), start=1):
        try:
            written(kind, table.names, values)
        except DataError as error:
            raise DataError(f"{table.path}, row {number:,}: {error.message}", error.hint) from None


def written(kind: str, names: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """Return values as a format has them: of JSON as such, elsewhere as text.

    Raises:
        DataError: one has no place in it.
    """
    place = json_value if kind == "json" else cell_text
    found = [place(value, name) for name, value in zip(names, values, strict=True)]
    if kind == "tsv" and (wrong := next((cell for cell in found if re.search(r"[\t\r\n]", cell)), None)):
        message = f"a field holds a tab or a line break ({wrong[:40]!r}), which a TSV cannot"
        raise DataError(message, "name the output .csv or .jsonl")
    return found


class TableWriter:
    """A file to which rows are added, in the format of `name`; a context manager.

    Args:
        path: the file, which must not exist.
        name: the name that it has in the end.
        table: whose rows are written.
    """

    def __init__(self, path: Path, name: Path, table: InputTable) -> None:
        self.kind, self.table, self.names = format_for(name), table, table.names
        self._files = ExitStack()
        self._writer: Any = None  # of columns, with their types
        self._schema: Any = None
        self._begun = False
        file: Any = self._files.enter_context(open(path, "xb"))  # noqa: SIM115
        if name.suffix.lower() == ".gz":
            file = self._files.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        of_columns = self.kind in ("parquet", "arrow")
        self._file = file if of_columns else self._files.enter_context(io.TextIOWrapper(file, "utf-8", newline=""))

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def append(self, rows: Sequence[Sequence[Any]], answers: Sequence[Mapping[str, Any]]) -> None:
        """Write rows with their answers, which have the same columns in each.

        Raises:
            DataError: a value has no place in the format.
        """
        if self.kind in ("parquet", "arrow"):
            self._append_columns(rows, answers)
            return
        if not self._begun:
            self._begun, self.names = True, (*self.table.names, *answers[0])
            if self.kind != "json" and (self.table.columns.has_header or not self.table.columns.n_fields):
                self._write(self.names)
        for row, answer in zip(rows, answers, strict=True):
            values = written(self.kind, self.names, [*row, *map(answer.get, self.names[len(row) :])])
            if self.kind == "json":
                there = {name: value for name, value in zip(self.names, values, strict=True) if value is not ABSENT}
                self._file.write(json_text(there) + "\n")
            else:
                self._write(values)
        self._file.flush()

    def _write(self, cells: Sequence[str]) -> None:
        """Write a row of a CSV or TSV."""
        if self.kind == "csv":
            csv.writer(self._file, lineterminator="\n").writerow(cells)
        else:
            self._file.write("\t".join(cells) + "\n")

    def _append_columns(self, rows: Sequence[Sequence[Any]], answers: Sequence[Mapping[str, Any]]) -> None:
        from glassformer.data.datasets.arrow_files import pyarrow_for, schema_of

        pa = pyarrow_for(self.table.path)
        if self._writer is None:
            own = pa.schema([(name, pa.string()) for name in self.names])
            own = schema_of(self.table.path) if is_columnar(self.table.path) else own
            new = [(name, _type_of(pa, value)) for name, value in answers[0].items()]
            fields = [pa.field(f.name, f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in own]
            schema = pa.schema([*fields, *(pa.field(*each) for each in new)], own.metadata)
            write = pa.parquet.ParquetWriter if self.kind == "parquet" else pa.ipc.new_file
            self._schema = schema
            self._writer = self._files.enter_context(write(self._file, schema))
        columns = zip(*([*row, *answer.values()] for row, answer in zip(rows, answers, strict=True)), strict=True)
        arrays = [_array(pa, field, column) for field, column in zip(self._schema, columns, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))


def _type_of(pa: Any, value: Any) -> Any:
    """Return the type of a column of answers."""
    if isinstance(value, list) and value and all(isinstance(each, float) for each in value):
        return pa.list_(pa.float64())
    return {int: pa.int64(), float: pa.float64()}.get(type(value), pa.string())


def _array(pa: Any, field: Any, values: Sequence[Any]) -> Any:
    """Return Python values as a column of a type; times came as text, durations as the text of their number."""
    if pa.types.is_temporal(field.type):
        text = pa.array(values, pa.string())
        return (text.cast(pa.int64()) if pa.types.is_duration(field.type) else text).cast(field.type)
    if field.type == pa.string():
        values = [value if value in (None, ABSENT) else cell_text(value, field.name) for value in values]
    values = [None if value is ABSENT else value for value in values]
    return pa.array(values, field.type)


def cell_text(value: Any, name: str) -> str:
    """Return a value as a field of a CSV: a missing one is empty, and what has parts is JSON.

    U+FFFD stands for NUL, which a model of bytes may write and no text file holds.

    Raises:
        DataError: it holds bytes, or characters that no file of text holds.
    """
    value = json_value(value, name)
    if value is None or value is ABSENT:
        return ""
    if not isinstance(value, str):
        return str(value) if isinstance(value, float) else json_text(value)
    value = value.replace("\0", "\ufffd")
    if issue := encoding_issue(value):
        raise DataError(f"in the column {name!r} {issue[1]}", "name the output .jsonl")
    return value


def json_text(value: Any) -> str:
    """Return a value as JSON on one line; half a surrogate pair, which no file holds, is an escape."""
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", json_line(value))


def json_value(value: Any, name: str) -> Any:
    """Return a value as JSON has it: times and decimal numbers as text.

    Raises:
        DataError: it holds bytes.
    """
    if value is None or value is ABSENT or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_value(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, name) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    kind = "bytes" if isinstance(value, bytes) else f"values of the type {type(value).__name__}"
    raise DataError(f"the column {name!r} holds {kind}, which text cannot", "name the output .parquet or .arrow")

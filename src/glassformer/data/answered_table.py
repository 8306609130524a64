"""A table to answer row by row, and the table that is written: all its columns, and those of the answers behind them.

A table is read to its end first, to find everything that is wrong in it, and then to be answered. What is written is
read back by `datasets/tables.py` as it was: JSON Lines, or a CSV with commas, and quotes where a field needs them (with
`--quotes yes` where a field has lines that are rows themselves).
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from glassformer.config import FilesConfig
from glassformer.data.datasets.columns import Columns, ColumnSpecs, below_header, open_table, row_values
from glassformer.data.datasets.tables import read_rows
from glassformer.data.diagnostics import Diagnostics, encoding_issue, suffix_of, unreadable
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import json_line

WRITTEN = (str, float, int, Decimal, list, dict, type(None))
"""Types of the values that are written."""
NOTHING_WRITTEN = "mend it and give the command again; nothing was written"

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
    form: FilesConfig

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield of each row the text, or the pair of two as one, and its values by column.

        Raises:
            DataError: the file is no longer what it was.
        """
        diagnostics = Diagnostics(form=self.form)
        for row in below_header(self.path, read_rows(self.path, diagnostics), self.columns, diagnostics):
            text, fields = row_values(row, self.columns, self.specs, self.path, diagnostics), row.fields
            if text is None:
                raise DataError(f"{self.path} changed while it was read", "give the command again when it is whole")
            yield text[0], fields if isinstance(fields, dict) else dict(zip(self.names, fields, strict=True))


def scan_table(path: Path, specs: ColumnSpecs, form: FilesConfig) -> InputTable:
    """Read a table to its end, and return what was found.

    Raises:
        DataError: something is wrong in it, or cannot be written as text; with the file and the line.
        UsageError: its name does not show its format, a column is missing, or pyarrow is not installed.
    """
    if message := unreadable(path):
        raise DataError(f"{path}: {message}", "check the path")
    diagnostics = Diagnostics(form=form)
    columns, rows, first = open_table(path, specs, diagnostics)
    if columns is None:
        diagnostics.raise_if_any(NOTHING_WRITTEN)
        raise DataError(f"{path}: there is no row in this file", NOTHING_WRITTEN)
    n_rows, names = 0, dict[str, None]()
    for row in rows:
        n_rows += row_values(row, columns, specs, path, diagnostics) is not None
        for name, value in row.fields.items() if isinstance(row.fields, dict) else ():
            names.setdefault(name)
            if not isinstance(value, WRITTEN):  # a type of a Parquet file that is not read
                what = f"{path}: the column {name!r} is of the type {value}, which is not written"
                raise DataError(what, "leave it out")
            if isinstance(value, str) and (issue := encoding_issue(value)):
                diagnostics.error(path, row.line, issue[0], f"in the column {name!r} {issue[1]}")
    if not n_rows and not diagnostics.n_issues:
        diagnostics.error(path, 0, "empty file", "there is no row in this file")
    diagnostics.raise_if_any(NOTHING_WRITTEN)
    if n_empty := diagnostics.counts["empty lines"]:
        diagnostics.notes.append(f"{path.name}: {n_empty:,} empty line{'s are' if n_empty > 1 else ' is'} left out")
    found = tuple(first if columns.has_header else names or (f"column_{i + 1}" for i in range(columns.n_fields)))
    if (double := next((name for name in found if found.count(name) > 1), None)) is not None:
        raise DataError(f"{path}: several columns have one name ({double!r})", "give each column a name of its own")
    return InputTable(path, columns, found, n_rows, diagnostics.notes, specs, form)


# --- what is written -------------------------------------------------------------------------------------------


def format_for(path: Path) -> str:
    """Return the format in which a table is written, "csv" or "jsonl".

    Raises:
        UsageError: the file's name does not show one that is written.
    """
    kind = suffix_of(path)[1:]
    if kind not in ("csv", "jsonl"):
        message = f"{path}: the name of a table to write ends in .csv or .jsonl, or in .gz behind it"
        raise UsageError(message, "name the file after the format that it should have")
    return kind


class TableWriter(ExitStack):
    """A file to which rows are added, in the format of `name`; a context manager.

    Args:
        path: the file, which must not exist.
        name: the name that it has in the end.
        table: whose rows are written, with those of answers behind them.
    """

    def __init__(self, path: Path, name: Path, table: InputTable) -> None:
        self.kind, self.table = format_for(name), table
        self.names: Sequence[str] = ()
        super().__init__()
        file: Any = self.enter_context(open(path, "xb"))  # noqa: SIM115
        if name.suffix.lower() == ".gz":
            file = self.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        self._file = self.enter_context(io.TextIOWrapper(file, "utf-8", newline=""))

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows, each with the columns of its answer, which are the same in all."""
        begins = not self.names
        self.names = self.names or (*self.table.names, *(name for name in rows[0] if name not in self.table.names))
        if self.kind == "jsonl":
            self._file.writelines(f"{json_line(row, default=str)}\n" for row in rows)
        else:
            # With its own line ends `csv` quotes a field that holds a carriage return alone, too.
            lines: Any = SimpleNamespace(write=lambda row: self._file.write(row.removesuffix("\r\n") + "\n"))
            writer = csv.writer(lines)
            if begins and (self.table.columns.has_header or not self.table.columns.n_fields):
                writer.writerow(self.names)
            writer.writerows([cell_text(row.get(name)) for name in self.names] for row in rows)
        self._file.flush()


def cell_text(value: Any) -> str:
    """Return a value as a field of a CSV: a missing one is empty, and what has parts is JSON.

    U+FFFD stands for NUL, which a model of bytes may write and no text file holds.
    """
    if value is None or isinstance(value, str):
        return (value or "").replace("\0", "\ufffd")
    return json_line(value, default=str) if isinstance(value, bool | list | tuple | dict) else str(value)

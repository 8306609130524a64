"""A whole table to answer row by row: CSV, TSV, JSON Lines, Parquet or Arrow, with all its columns.

It is read in passes of bounded memory, by the readers of training. The first, `scan_table`, finds everything that is
wrong before an answer is computed, counts the rows, and takes the hash of the content, with which later passes are
compared. Each row is an example: one that repeats the header is answered too.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from glassformer.data.datasets import headers
from glassformer.data.datasets.columns import (
    SAMPLE_ROWS,
    ColumnSpec,
    ColumnSpecs,
    ResolvedColumns,
    resolve_columns,
    row_values,
)
from glassformer.data.datasets.quotes import JoinedRows
from glassformer.data.datasets.tables import Layout, Row, layout_of, read_rows
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.sources import format_of, is_columnar, is_saved_dataset, is_saved_splits, unreadable
from glassformer.errors import DataError, UsageError

LARGEST_INTEGER, LARGEST_EXACT = 2**63, 2**53
"""Integers that 64 bits hold, and those that a float is sure to hold."""
SPECIAL = frozenset("\t\r\n")


@dataclass(frozen=True)
class InputTable:
    """A table that was read to its end, and what was found.

    Attributes:
        path: where it is.
        column: the column of the texts, or those of the two texts of each pair.
        names: its columns in order, of JSON the keys of all objects. Without a header they are column_1, column_2 …
        has_header: whether the names are in the file.
        n_rows: rows below the header.
        sha256: hash of the content.
        layout: how a CSV or TSV is parted.
        kinds: of JSON the kinds of values in each column ("string", "integer", "number", "boolean", "null", "nested").
        is_plain: whether no field holds a tab, a line break, or a quote that is text.
        has_mark: whether it begins with a byte order mark, as spreadsheets write it.
        notes: how it was read.
        specs: how the columns were looked for.
    """

    path: Path
    column: ResolvedColumns
    names: tuple[str, ...]
    has_header: bool
    n_rows: int
    sha256: str
    layout: Layout | None
    kinds: Mapping[str, frozenset[str]]
    is_plain: bool
    has_mark: bool
    notes: list[str]
    specs: ColumnSpecs

    @property
    def is_columnar(self) -> bool:
        return is_columnar(self.path)

    def texts(self) -> Iterator[str]:
        """Yield the text of each row; errors as in `rows`."""
        diagnostics = Diagnostics()
        for row in self._read(diagnostics):
            values = row_values(_flat(row, self.specs), self.column, self.specs, self.path, diagnostics)
            if values is None:
                raise self._changed()
            yield values[0]

    def rows(self) -> Iterator[dict[str, Any] | list[str]]:
        """Yield the fields of each row, of a columnar file as Python values.

        Raises:
            DataError: the file is no longer what it was.
        """
        if self.is_columnar:
            from glassformer.data.datasets.arrow_files import python_rows

            for batch in self.batches():
                yield from python_rows(batch, self.path)
        else:
            yield from (row.fields for row in self._read(Diagnostics()))

    def batches(self) -> Iterator[Any]:
        """Yield the record batches of a columnar file; errors as in `rows`."""
        from glassformer.data.datasets.arrow_files import read_batches

        diagnostics = Diagnostics()
        yield from read_batches(self.path, diagnostics)
        self._compare(diagnostics)

    def _read(self, diagnostics: Diagnostics) -> Iterator[Row]:
        rows = read_rows(self.path, diagnostics)
        yield from itertools.islice(rows, int(self.has_header and self.layout is not None), None)
        self._compare(diagnostics)

    def _compare(self, diagnostics: Diagnostics) -> None:
        if _content_of(diagnostics) != self.sha256:
            raise self._changed()

    def _changed(self) -> DataError:
        return DataError(f"{self.path} changed while it was read", "give the command again when it is whole")


def scan_table(path: Path, *specs: ColumnSpec) -> InputTable:
    """Read a table to its end, and return what was found.

    `specs` are the column of the texts, or those of the two texts of each pair.

    Raises:
        DataError: something is wrong in it; with the file and the line.
        UsageError: its name does not show its format, the column is missing, or pyarrow is not installed.
    """
    if is_saved_splits(path):
        raise UsageError(f"{path} holds the splits of a data set", f"name one of them, as in: {path / 'test'}")
    if message := unreadable(path) if not is_saved_dataset(path) else "":
        raise DataError(f"{path}: {message}", "check the path")
    diagnostics = Diagnostics()
    rows = read_rows(path, diagnostics)
    sample = list(itertools.islice(rows, SAMPLE_ROWS))
    flat = [_flat(row, specs) for row in sample]
    column = resolve_columns(path, flat, specs, diagnostics) if sample else None
    if column is None:
        _refuse(path, diagnostics)
    scan = _Scan(path, column, specs, sample[0])
    for row in itertools.chain(sample, rows):
        scan.add(row, diagnostics)
    scan.joined.report(path, (), scan.n_rows, diagnostics)
    n_rows = scan.n_rows - scan.has_header
    if diagnostics.n_issues or not n_rows:
        _refuse(path, diagnostics)
    if n_empty := diagnostics.counts["empty lines"]:
        diagnostics.notes.append(f"{path.name}: {n_empty:,} empty line{'s are' if n_empty > 1 else ' is'} left out")
    delimited = isinstance(sample[0].fields, list)
    return InputTable(
        path,
        column,
        scan.names,
        scan.has_header or not delimited,
        n_rows,
        _content_of(diagnostics),
        layout_of(path) if delimited else None,
        {name: frozenset(kinds) for name, kinds in scan.kinds.items()},
        scan.is_plain,
        diagnostics.counts["byte order marks"] > 0 and format_of(path) == ".csv",
        diagnostics.notes,
        specs,
    )


class _Scan:
    """What the rows of a table say of it, row by row."""

    def __init__(self, path: Path, column: ResolvedColumns, specs: ColumnSpecs, first: Row) -> None:
        self.path, self.column, self.specs, self.n_rows = path, column, specs, 0
        self.joined = JoinedRows(column.n_fields, None)
        self.kinds: dict[str, set[str]] = {}
        self.is_plain = not is_columnar(path)
        usual, named = [spec.usual for spec in specs], any(spec.requested for spec in specs)
        kind = headers.first_row(column.has_header, list(first.fields), usual, named)
        self.has_header, self._doubtful = kind != "example", kind == "doubtful"
        self._first = first.fields if isinstance(first.fields, list) else []
        self._columns = _all_names(path) if is_columnar(path) else ()
        self._quotes_are_text = not is_columnar(path) and format_of(path) in (".tsv", ".tab")
        if self._quotes_are_text:
            self._quotes_are_text = not layout_of(path).quotes

    @property
    def names(self) -> tuple[str, ...]:
        if not self._first:
            return tuple(self._columns or self.kinds)
        return tuple(self._first if self.has_header else (f"column_{i + 1}" for i in range(len(self._first))))

    def add(self, row: Row, diagnostics: Diagnostics) -> None:
        """Take a row; what is wrong with it goes to `diagnostics`."""
        self.n_rows += 1
        if row.alone:
            self.joined.add(row.line, row.alone)
        fields = row.fields
        if isinstance(fields, list):
            again = self._doubtful and self.n_rows > 1 and len(fields) == len(self._first)
            if again and headers.repeats_header(fields, [headers.plain(name) for name in self._first]):
                self.has_header = self._doubtful = False  # a text that stands twice, and no header
            cells: Sequence[Any] = fields
        else:
            for name, value in fields.items():
                self.kinds.setdefault(name, set()).add(_kind(value))
            cells = [*fields, *fields.values()]
        self.is_plain = self.is_plain and not any(map(self._is_special, cells))
        row_values(_flat(row, self.specs), self.column, self.specs, self.path, diagnostics)

    def _is_special(self, cell: Any) -> bool:
        if not isinstance(cell, str):
            return isinstance(cell, dict | list)
        return not SPECIAL.isdisjoint(cell) or ('"' in cell and not self._quotes_are_text)


def _flat(row: Row, specs: ColumnSpecs) -> Row:
    """Return a row with the fields of an inner object "translation", as training reads it."""
    if not isinstance(row.fields, dict) or "translation" not in row.fields:
        return row
    return next(headers.unnested_rows((row,), [(spec.requested, spec.usual) for spec in specs]))


def _all_names(path: Path) -> tuple[str, ...]:
    from glassformer.data.datasets.arrow_files import schema_of

    return tuple(schema_of(path).names)


def _kind(value: Any) -> str:
    """Return the kind of a JSON value; an integer that no 64 bits hold is nested, as is what has parts."""
    if isinstance(value, int) and not isinstance(value, bool):
        exact = abs(value) <= LARGEST_EXACT
        return "integer" if exact else "large integer" if -LARGEST_INTEGER <= value < LARGEST_INTEGER else "nested"
    kinds = {str: "string", bool: "boolean", float: "number", type(None): "null"}
    return kinds.get(type(value), "nested")


def _content_of(diagnostics: Diagnostics) -> str:
    """Return one hash of the hashes of the files that were read."""
    hashes = [*diagnostics.hashes.values()]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _refuse(path: Path, diagnostics: Diagnostics) -> NoReturn:
    if not diagnostics.n_issues:
        diagnostics.error(path, 0, "empty file", "there is no row in this file")
    more = diagnostics.n_issues - 1
    also = f" (and {more:,} more {'problem' if more == 1 else 'problems'})" if more else ""
    raise DataError(f"{diagnostics.issues[0]}{also}", "mend it and give the command again; nothing was written")

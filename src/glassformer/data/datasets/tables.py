"""CSV, TSV and JSON Lines as rows with line numbers, read strictly and one row at a time.

Which of the columns are meant is decided in `columns.py`. A CSV follows RFC 4180: quotes may hold commas and
line breaks. A TSV has no quotes: a tab ends a field, a line a row. JSON Lines has one object a line.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.diagnostics import Diagnostics, numbered_lines
from glassformer.data.sources import format_of
from glassformer.errors import UsageError

LARGEST_FIELD = 1 << 30
"""Characters; `csv` refuses fields over 131,072 unless told."""


@dataclass(frozen=True)
class Row:
    """One row: the line it begins on, and its fields by position (CSV, TSV) or by name (JSON Lines)."""

    line: int
    fields: list[str] | dict[str, Any]


def read_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of a table with its header; empty lines are skipped and counted.

    Raises:
        UsageError: the file's name does not tell its format (of a pipe, its first line does: `format_of`).
    """
    match format_of(path):
        case ".csv":
            rows = _csv_rows(path, diagnostics)
        case ".tsv" | ".tab":
            lines = numbered_lines(path, diagnostics)
            rows = (Row(number, line.split("\t") if line else []) for number, line in lines)
        case ".jsonl" | ".ndjson":
            rows = _json_rows(path, diagnostics)
        case other:
            raise UsageError(
                f"{path}: a table's name ends in .csv, .tsv or .jsonl, not {other or 'nothing'!r}",
                hint="rename the file after what it holds",
            )
    for row in rows:
        if row.fields or isinstance(row.fields, dict):
            yield row
        else:
            diagnostics.counts["empty lines"] += 1


def _csv_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_FIELD))
    lines = numbered_lines(path, diagnostics)
    first = next(lines, None)
    if first is None:
        return
    delimiter = _delimiter(first[1], path, diagnostics)
    last = 0  # number of the last line the parser has taken

    def feed() -> Iterator[str]:
        nonlocal last
        for number, line in itertools.chain([first], lines):
            last = number
            yield line + "\n"

    rows, begins = csv.reader(feed(), delimiter=delimiter, strict=True), 1
    while True:
        try:
            fields = next(rows, None)
        except csv.Error as error:
            end = "" if begins == last else f", seen at line {last}"
            reason = "a quote is not closed" if "unexpected end" in str(error) else f"a stray quote ({error})"
            diagnostics.error(path, begins, "quote", f"{reason} in the row that begins here{end}")
            return
        if fields is None:
            return
        yield Row(begins, fields)
        begins = last + 1


def _delimiter(header: str, path: Path, diagnostics: Diagnostics) -> str:
    """Return a comma, unless the first line has none and has semicolons or tabs."""
    for other, name in ((";", "semicolons"), ("\t", "tabs")):
        if "," not in header and other in header:
            diagnostics.notes.append(f"{path.name}: columns are parted by {name}")
            return other
    return ","


def _json_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    for number, line in numbered_lines(path, diagnostics):
        if not line.strip():
            yield Row(number, [])
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            diagnostics.error(path, number, "json", f"this is not JSON ({error.msg}, column {error.colno})")
            continue
        except (ValueError, RecursionError) as error:
            diagnostics.error(path, number, "json", f"this is not JSON ({error})")
            continue
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            diagnostics.error(path, number, "json", f"a JSON object is expected, not {type(value).__name__}")

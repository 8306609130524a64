"""CSV, TSV and JSON Lines as rows with line numbers, read strictly and one row at a time.

Which of the columns are meant is decided in `columns.py`. A CSV follows RFC 4180: quotes may hold commas and
line breaks. A TSV has no quotes, unless all it has are plainly those of a CSV writer: a tab ends a field, a line a row.
Excel's first line `sep=;` names the delimiter of either. JSON Lines has one object a line.

Parquet and Arrow have rows without lines: `arrow_files.py`.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.datasets.quotes import (
    LineBreaks,
    all_quoted,
    note_literal_quotes,
    quotes_behind_spaces,
    quotes_of_csv,
)
from glassformer.data.diagnostics import RETURNS_ALONE, Diagnostics, numbered_lines
from glassformer.data.sources import format_of, is_columnar, unreadable
from glassformer.errors import UsageError

LARGEST_FIELD = 1 << 30
"""Characters; `csv` refuses fields over 131,072 unless told."""
SAMPLE_LINES = 1000
"""Lines read before it is decided what delimits fields and whether quotes hold them."""
_SEPARATOR = re.compile(r'"?sep=(\\t|[^\w"]|"[^\w"]")"?[,;\t ]*', re.IGNORECASE)
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True)
class Row:
    """One row: the line it begins on, and its fields by position (CSV, TSV) or by name (JSON Lines, Parquet).

    `alone` are the lines of a row over several of them, each split as if quotes were characters; empty where all fields
    of it and of the rows before are in quotes, so that none of these is stray.
    """

    line: int
    fields: list[str] | dict[str, Any]
    alone: tuple[list[str], ...] = ()


def read_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of a table with its header; empty lines are skipped and counted.

    Raises:
        UsageError: the file's name does not show its format (of a pipe, its first line does: `format_of`).
    """
    if is_columnar(path):
        from glassformer.data.datasets.arrow_files import read_fields

        yield from itertools.starmap(Row, enumerate(read_fields(path, diagnostics), start=1))
        return
    if path.exists() and (message := unreadable(path)):
        diagnostics.error(path, 0, "missing", message)
        return
    match format_of(path):
        case ".csv":
            rows = _delimited_rows(path, True, diagnostics)
        case ".tsv" | ".tab":
            rows = _delimited_rows(path, False, diagnostics)
        case ".jsonl" | ".ndjson":
            rows = _json_rows(path, diagnostics)
        case other:
            raise UsageError(
                f"{path}: a table's name ends in .csv, .tsv or .jsonl, .parquet or .arrow, not {other or 'nothing'!r}",
                hint="rename the file after what it holds",
            )
    n_empty, before = 0, diagnostics.n_unreadable  # a line that could not be decoded came as an empty one
    for row in rows:
        if row.fields or isinstance(row.fields, dict):
            yield row
        else:
            n_empty += 1
    diagnostics.counts["empty lines"] += max(0, n_empty - (diagnostics.n_unreadable - before))


@dataclass(frozen=True)
class Layout:
    """How the lines of a CSV or TSV are parted.

    Attributes:
        delimiter: what stands between fields.
        quotes: whether quotes hold fields; else they are text.
        spaced: whether spaces may stand before a quoted field.
        named: whether the first line names the delimiter.
    """

    delimiter: str
    quotes: bool
    spaced: bool = False
    named: bool = False


def layout_of(path: Path) -> Layout:
    """Return how a CSV or TSV is parted, by its first lines."""
    lines = [line for _, line in itertools.islice(numbered_lines(path, Diagnostics()), SAMPLE_LINES)]
    return _layout([line for line in lines if line.strip()], format_of(path) == ".csv")


def _layout(lines: list[str], is_csv: bool) -> Layout:
    """Return how the first lines of a table are parted; those that hold nothing are left out."""
    if not lines:
        return Layout(",", True)
    separator = _separator(lines[0])
    delimiter = separator or (_delimiter(lines[0]) if is_csv else "\t")
    lines = lines[1:] if separator else lines
    is_csv |= delimiter != "\t"
    quotes = is_csv or (bool(lines) and quotes_of_csv(lines))
    return Layout(delimiter, quotes, quotes and quotes_behind_spaces(lines, delimiter), separator is not None)


def _delimited_rows(path: Path, is_csv: bool, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV, behind the line that names its delimiter if there is one."""
    numbered = numbered_lines(path, diagnostics)
    head = list(itertools.islice(numbered, SAMPLE_LINES))
    first = next((i for i, (_, line) in enumerate(head) if line.strip()), None)
    if first is None:
        yield from (Row(number, []) for number, _ in head)
        return
    if "\r" in head[first][1]:
        diagnostics.error(path, head[first][0], "line ends", RETURNS_ALONE)
        return
    layout = _layout([line for _, line in head if line.strip()], is_csv)
    _note_layout(path, layout, is_csv, diagnostics)
    if layout.named:
        del head[first]
        diagnostics.counts["lines that name the delimiter"] += 1
    lines = itertools.chain(head, numbered)
    if not layout.quotes:
        yield from _tsv_rows(path, lines, diagnostics)
        return
    for row in _csv_rows(path, lines, layout.delimiter, layout.spaced, diagnostics):
        if layout.named and not row.alone and _separator(layout.delimiter.join(row.fields)) == layout.delimiter:
            diagnostics.counts["lines that name the delimiter"] += 1
        else:
            yield row


def _note_layout(path: Path, layout: Layout, is_csv: bool, diagnostics: Diagnostics) -> None:
    name = _DELIMITERS.get(layout.delimiter, repr(layout.delimiter))
    if layout.named:
        diagnostics.notes.append(f"{path.name}: columns are parted by {name}, as its first line says")
        is_csv |= layout.delimiter != "\t"
    elif is_csv and layout.delimiter != ",":
        diagnostics.notes.append(f"{path.name}: columns are parted by {name}")
    if layout.quotes and not is_csv:
        diagnostics.notes.append(f"{path.name}: quotes around fields are read as those of a CSV")
    if layout.spaced:
        diagnostics.notes.append(f"{path.name}: spaces before quoted fields are left out")


def _tsv_rows(path: Path, lines: Iterable[tuple[int, str]], diagnostics: Diagnostics) -> Iterator[Row]:
    n_quoted = 0
    for number, line in lines:
        fields = line.split("\t") if line else []
        if '"' in line:
            n_quoted += sum(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)
        yield Row(number, fields)
    note_literal_quotes(path, n_quoted, diagnostics)


def _csv_rows(
    path: Path, lines: Iterable[tuple[int, str]], delimiter: str, spaced: bool, diagnostics: Diagnostics
) -> Iterator[Row]:
    """Yield the rows of a CSV; `spaced` says that spaces may stand before a field."""
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_FIELD))
    taken: list[tuple[int, str]] = []  # the lines of a row

    def feed() -> Iterator[str]:
        for number, line in lines:
            taken.append((number, line))
            yield line + "\n"

    rows = csv.reader(feed(), delimiter=delimiter, strict=True, skipinitialspace=spaced)
    breaks = LineBreaks()
    exact = True  # all rows so far have each field in quotes, so that none of the quotes is stray
    while True:
        taken.clear()
        try:
            fields = next(rows, None)
        except csv.Error as error:
            begins, last = taken[0][0], taken[-1][0]
            end = "" if begins == last else f", seen at line {last}"
            diagnostics.error(path, begins, "quote", f"{_reason(error)} in the row that begins here{end}")
            break
        if fields is None:
            break
        begins, alone = taken[0][0], ()
        exact = exact and all_quoted("\n".join(line for _, line in taken), delimiter)
        if len(taken) > 1:
            breaks.add(fields, begins, taken[-1][0])
            alone = () if exact else tuple(line.split(delimiter) for _, line in taken)
        yield Row(begins, fields, alone)
    breaks.note(path, diagnostics)


def _reason(error: csv.Error) -> str:
    if "unexpected end" in str(error):
        return "a quote is not closed"
    if "new-line" in str(error):
        return "a carriage return stands outside quotes"
    return f"a stray quote ({error})"


def _separator(line: str) -> str | None:
    """Return the delimiter that a line like `sep=;` names; None for other lines."""
    match = _SEPARATOR.fullmatch(line)
    return match and ("\t" if match.group(1) == "\\t" else match.group(1).strip('"'))


def _delimiter(header: str) -> str:
    """Return a comma, unless the first line has none and has semicolons or tabs."""
    return next((other for other in (";", "\t") if "," not in header and other in header), ",")


def other_delimiter(rows: Sequence[list[str] | dict[str, Any]]) -> str:
    """Return what else may part the columns of rows with one field, for an error message; empty if nothing does."""
    lines = [row[0] for row in rows if isinstance(row, list) and len(row) == 1]
    for character in ";\t,|^~:":
        n = {line.count(character) for line in lines}
        if len(lines) == len(rows) > 0 and len(n) == 1 and 0 not in n:
            written = character.replace("\t", "\\t")
            return f"; if each {written!r} parts two columns, let the first line be sep={written}"
    return ""


def _json_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    for number, line in numbered_lines(path, diagnostics):
        if not line.strip():
            yield Row(number, [])
            continue
        try:
            value = _DECODER.decode(line)
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


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError if a field stands twice in it."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = [key for key, _ in pairs]
        raise ValueError(f"the field {next(key for key in seen if seen.count(key) > 1)!r} stands twice")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_object_of)

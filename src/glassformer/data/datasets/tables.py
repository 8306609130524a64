"""CSV, TSV, JSON Lines, Parquet and Arrow as rows with line numbers, read strictly and one row at a time.

Which of the columns are meant is decided in `columns.py`. A CSV follows RFC 4180: quotes may hold commas and line
breaks. In a TSV quotes are characters: a tab ends a field, a line a row. Excel's first line `sep=;` names the delimiter
of either. JSON Lines has one object a line. Parquet and Arrow have rows without lines: `arrow_files.py`.
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

from glassformer.data.diagnostics import RETURNS_ALONE, Diagnostics, numbered_lines
from glassformer.data.sources import format_of, is_columnar, unreadable
from glassformer.errors import UsageError

LARGEST_FIELD = 1 << 30
"""Characters; `csv` refuses fields over 131,072 unless told."""
HEAD_LINES, HEAD_ROWS = 1000, 101
"""Lines that are read before the delimiter is known, and the rows among them that it must part alike."""
ADVICE = 'double the quotes in texts (""), or, if quotes are characters: --quotes no'
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SEPARATOR = re.compile(r'"?sep=(\\t|[^\w"]|"[^\w"]")"?[,;\t ]*', re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One row: the line it begins on, and its fields by position (CSV, TSV) or by name (JSON Lines, Parquet)."""

    line: int
    fields: list[str] | dict[str, Any]


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
        case ".csv" | ".tsv" | ".tab":
            rows = _delimited_rows(path, diagnostics)
        case ".jsonl" | ".ndjson":
            rows = _json_rows(path, diagnostics)
        case other:
            raise UsageError(
                f"{path}: a table's name ends in .csv, .tsv or .jsonl, .parquet or .arrow, not {other or 'nothing'!r}",
                hint="rename the file after what it holds",
            )
    before = diagnostics.n_unreadable  # a line that could not be decoded came as an empty one
    n_empty = 0
    for row in rows:
        if row.fields == []:
            n_empty += 1
        else:
            yield row
    diagnostics.counts["empty lines"] += max(0, n_empty - (diagnostics.n_unreadable - before))


# --- CSV and TSV -----------------------------------------------------------------------------------------------


def _delimiter(path: Path, lines: list[str], quotes: bool) -> str:
    """Return what parts the first rows into as many fields, two or more; if nothing does, what parts the first.

    Raises:
        UsageError: two delimiters do.
    """
    widths = {delimiter: _widths(lines, delimiter, quotes) for delimiter in DELIMITERS}
    fitting = [delimiter for delimiter, found in widths.items() if len({*found}) == 1 and found[0] > 1]
    if len(fitting) > 1:
        first, second = (delimiter.replace("\t", "\\t") for delimiter in fitting[:2])
        what = f"{path}: both {DELIMITERS[fitting[0]]} and {DELIMITERS[fitting[1]]} part its rows into columns"
        raise UsageError(what, f"say which: --delimiter '{first}' or --delimiter '{second}'")
    return fitting[0] if fitting else max(DELIMITERS, key=lambda delimiter: max(widths[delimiter][:1], default=0))


def _widths(lines: list[str], delimiter: str, quotes: bool) -> list[int]:
    """Return the numbers of fields of the first rows, up to one that cannot be read or is not whole."""
    widths = list[int]()
    how = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    rows = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True, quoting=how)
    try:
        widths.extend(len(row) for row in itertools.islice(rows, HEAD_ROWS))
    except csv.Error:
        pass  # reported where the row is read
    return widths


def _delimited_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV, behind the line that names its delimiter if there is one.

    Raises:
        UsageError: two delimiters part the first rows into as many fields, or --delimiter is not one character.
    """
    numbered, form = numbered_lines(path, diagnostics), diagnostics.form
    head = list(itertools.islice(numbered, HEAD_LINES))
    lines = [line for _, line in head if line.strip()]
    given = form.delimiter and form.delimiter.replace("\\t", "\t")
    if given is not None and not re.fullmatch(r'[^"\r\n]', given):
        raise UsageError(f"--delimiter is one character, not {given!r}", "name it, such as --delimiter ';'")
    if lines and "\r" in lines[0]:
        diagnostics.error(path, next(number for number, line in head if line.strip()), "line ends", RETURNS_ALONE)
        return
    usual = "," if format_of(path) == ".csv" else "\t"
    named = _named_delimiter(lines[0]) if lines else None
    delimiter = given or named or ("\t" if usual == "\t" else None)
    quotes = form.quotes == "yes" if form.quotes else (usual, delimiter) != ("\t", "\t")
    delimiter = delimiter or _delimiter(path, lines, quotes)
    parted = f"{path.name}: columns are parted by {DELIMITERS.get(delimiter, repr(delimiter))}"
    if named:
        head.remove(next(each for each in head if each[1].strip()))
        diagnostics.counts["lines that name the delimiter"] += 1
        diagnostics.notes.append(f"{parted}, as its first line says")
    elif delimiter != usual:
        diagnostics.notes.append(parted)
    yield from (_quoted_rows if quotes else _plain_rows)(path, itertools.chain(head, numbered), delimiter, diagnostics)


def _plain_rows(
    path: Path, lines: Iterable[tuple[int, str]], delimiter: str, diagnostics: Diagnostics
) -> Iterator[Row]:
    """Yield a row a line; quotes are characters."""
    n_quoted = 0
    for number, line in lines:
        fields = line.split(delimiter) if line else []
        if '"' in line:
            n_quoted += sum(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)
        yield Row(number, fields)
    if n_quoted and diagnostics.form.quotes is None:
        diagnostics.counts["fields in quotes, which are characters"] += n_quoted
        fields = "1 field begins and ends" if n_quoted == 1 else f"{n_quoted:,} fields begin and end"
        kept = "with a quote, kept as a character; if they hold fields, as in a CSV: --quotes yes"
        diagnostics.notes.append(f"{path.name}: {fields} {kept}")


def _quoted_rows(
    path: Path, lines: Iterable[tuple[int, str]], delimiter: str, diagnostics: Diagnostics
) -> Iterator[Row]:
    """Yield rows whose quotes hold fields; a row may go over several lines."""
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_FIELD))
    taken: list[tuple[int, str]] = []  # the lines of a row

    def feed() -> Iterator[str]:
        for number, line in lines:
            taken.append((number, line))
            yield line + "\n"

    rows = csv.reader(feed(), delimiter=delimiter, strict=True)
    n_breaks, width = 0, 0
    while True:
        taken.clear()
        try:
            fields = next(rows, None)
            problem = ""
        except csv.Error as error:
            fields, end = [], "" if len(taken) == 1 else f", seen at line {taken[-1][0]}"
            problem = f"{_reason(error)} in the row that begins here{end}"
        if fields is None:
            break
        begins, width = taken[0][0], width or len(fields)
        if problem := problem or _quote_problem(taken, fields, delimiter, width, diagnostics.form.quotes == "yes"):
            diagnostics.error(path, begins, "quote", problem)
            break
        n_breaks += sum("\n" in field for field in fields)
        yield Row(begins, fields)
    if n_breaks:
        diagnostics.counts["fields over several lines"] += n_breaks
        what = "1 quoted field goes" if n_breaks == 1 else f"{n_breaks:,} quoted fields go"
        diagnostics.notes.append(f"{path.name}: {what} over several lines")


def _quote_problem(
    taken: Sequence[tuple[int, str]], fields: Sequence[str], delimiter: str, width: int, certain: bool
) -> str:
    """Return what is wrong with the quotes of a row; "" if nothing is.

    A text that begins with a quote opens a field, which ends at the next quote, perhaps many rows below. Such a row
    differs from a text of several lines in this: its lines, taken alone, are rows of the table.
    """
    lines = [line.split(delimiter) for _, line in taken if line.strip()]
    alike = [len(cells) == width and not any(cell.startswith(" ") for cell in cells[1:]) for cells in lines]
    n_quotes = sum(line.count('"') for _, line in taken)
    none_stray = n_quotes == sum(2 + 2 * field.count('"') for field in fields)  # all fields are in quotes
    if certain or none_stray or width == 1 or len(taken) == 1 or not all(alike):
        return ""
    return (
        f"a quoted field goes over lines {taken[0][0]:,} to {taken[-1][0]:,}, and these are rows of {width} columns "
        'themselves; double the quotes in texts (""), or, if quotes are characters: --quotes no; if this is one text: '
        "--quotes yes"
    )


def _reason(error: csv.Error) -> str:
    if "unexpected end" in str(error):
        return f"a quote is not closed; {ADVICE}"
    if "new-line" in str(error):
        return "a carriage return stands outside quotes"
    return f"a stray quote ({error}); {ADVICE}"


def _named_delimiter(line: str) -> str | None:
    """Return the delimiter that a line like `sep=;` names; None for other lines."""
    match = _SEPARATOR.fullmatch(line)
    return match and ("\t" if match.group(1) == "\\t" else match.group(1).strip('"'))


# --- JSON Lines ------------------------------------------------------------------------------------------------


def _json_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    for number, line in numbered_lines(path, diagnostics):
        if not line.strip():
            yield Row(number, [])
            continue
        try:
            value = _DECODER.decode(line)
        except (ValueError, RecursionError) as error:
            where = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            diagnostics.error(path, number, "json", f"this is not JSON ({getattr(error, 'msg', error)}{where})")
            continue
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            what = f"a JSON object is expected, not {type(value).__name__}; write one object a line, such as"
            diagnostics.error(path, number, "json", f'{what} {{"text": "…", "label": "…"}}')


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError if a field stands twice in it."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = [key for key, _ in pairs]
        raise ValueError(f"the field {next(key for key in seen if seen.count(key) > 1)!r} stands twice")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_object_of)

"""CSV, TSV, JSON Lines, Parquet and Arrow as rows with line numbers, read strictly and one row at a time.

Which of the columns are meant is decided in `columns.py`. A CSV follows RFC 4180: quotes may hold commas and line
breaks. In a TSV quotes are characters: a tab ends a field, a line a row. Excel's first line `sep=;` names the delimiter
of either. JSON Lines has one object a line. Parquet and Arrow have rows without lines: `arrow_files.py`.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.diagnostics import TABLES, Diagnostics, is_columnar, numbered_lines, suffix_of, unreadable
from glassformer.errors import UsageError
from glassformer.utils.formatting import counted

HEAD_LINES, HEAD_ROWS = 1000, 101
"""Lines that are read before the delimiter is known, and the rows among them that it must part alike."""
OBJECTS = 'write one object a line, such as {"text": "…", "label": "…"}'
ADVICE = 'double the quotes in texts (""), or, if quotes are characters: --quotes no'
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_NAMES_DELIMITER = re.compile(r'"?sep=(\\t|[^\w"]|"[^\w"]")"?[,;\t ]*', re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One row: the line it begins on, and its fields by position (CSV, TSV) or by name (JSON Lines, Parquet)."""

    line: int
    fields: list[str] | dict[str, Any]


def read_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of a table with its header; empty lines are skipped and counted.

    Raises:
        UsageError: the file's name does not show its format.
    """
    suffix = suffix_of(path)
    if message := unreadable(path):
        diagnostics.stop(path, 0, "missing", message)
    elif is_columnar(path):
        from glassformer.data.datasets.arrow_files import read_fields

        yield from itertools.starmap(Row, enumerate(read_fields(path, diagnostics), start=1))
    elif suffix in TABLES:
        for row in (_json_rows if suffix == ".jsonl" else _delimited_rows)(path, diagnostics):
            diagnostics.counts["empty lines"] += row.fields == []
            if row.fields != []:
                yield row
    else:
        what = f"{path}: a table's name ends in .csv, .tsv or .jsonl, .parquet or .arrow, not {suffix or 'in none'}"
        raise UsageError(what, hint="write it as one of these, one text a row")


# --- CSV and TSV -----------------------------------------------------------------------------------------------


def _delimited_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV, behind the line that names its delimiter if there is one.

    Raises:
        UsageError: two delimiters part the first rows into as many fields, or --delimiter is not one character.
    """
    numbered, form, is_csv = numbered_lines(path, diagnostics), diagnostics.form, suffix_of(path) == ".csv"
    head = list(itertools.islice(numbered, HEAD_LINES))
    lines = [line for _, line in head if line.strip()]
    given = form.delimiter and form.delimiter.replace("\\t", "\t")
    if given is not None and not re.fullmatch(r'[^"\r\n]', given):
        raise UsageError(f"--delimiter is one character, not {given!r}", "name it, such as --delimiter ';'")
    if named := _NAMES_DELIMITER.fullmatch(lines[0]) if lines else None:
        head.remove(next(each for each in head if each[1] == lines[0]))
        diagnostics.counts["lines that name the delimiter"] += 1
        given = given or named[1].replace("\\t", "\t").strip('"')
    delimiter = given or ("" if is_csv else "\t")
    quotes = form.quotes == "yes" if form.quotes else is_csv or delimiter != "\t"
    delimiter = delimiter or _delimiter(path, lines, quotes)
    if named or delimiter != ("," if is_csv else "\t"):
        parted = f"{path.name}: columns are parted by {DELIMITERS.get(delimiter, repr(delimiter))}"
        diagnostics.notes.append(f"{parted}{', as its first line says' * bool(named)}")
    yield from (_quoted_rows if quotes else _plain_rows)(path, itertools.chain(head, numbered), delimiter, diagnostics)


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


def _plain_rows(
    path: Path, lines: Iterable[tuple[int, str]], delimiter: str, diagnostics: Diagnostics
) -> Iterator[Row]:
    """Yield a row a line; quotes are characters."""
    n_quoted = 0
    for number, line in lines:
        fields = line.split(delimiter) if line else []
        n_quoted += sum(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)
        yield Row(number, fields)
    if n_quoted:
        kept = f"{counted(n_quoted, 'fields')} in quotes, which are kept as characters"
        diagnostics.notes.append(f"{path.name}: {kept}; if they hold fields, as in a CSV: --quotes yes")


def _quoted_rows(
    path: Path, lines: Iterable[tuple[int, str]], delimiter: str, diagnostics: Diagnostics
) -> Iterator[Row]:
    """Yield rows whose quotes hold fields; a row may go over several lines."""
    csv.field_size_limit(1 << 30)  # characters; 131,072 by default
    taken: list[tuple[int, str]] = []  # the lines of a row

    def feed() -> Iterator[str]:
        for number, line in lines:
            taken.append((number, line))
            yield line + "\n"

    rows = csv.reader(feed(), delimiter=delimiter, strict=True)
    n_breaks, width, problem = 0, 0, ""
    while not problem:
        taken.clear()
        try:
            if (fields := next(rows, None)) is None:
                break
            width = width or len(fields)
            problem = _quote_problem(taken, fields, delimiter, width, diagnostics.form.quotes == "yes")
        except csv.Error as error:
            fields, end = [], "" if len(taken) == 1 else f", seen at line {taken[-1][0]}"
            problem = _reason(error, f"in the row that begins here{end}")
        if problem and path not in diagnostics.cut:  # else the row is not whole
            diagnostics.stop(path, taken[0][0], "quote", problem)
        elif not problem:
            n_breaks += sum("\n" in field for field in fields)
            yield Row(taken[0][0], fields)
    if n_breaks:
        diagnostics.notes.append(f"{path.name}: {counted(n_breaks, 'quoted fields')} of several lines")


def _quote_problem(
    taken: Sequence[tuple[int, str]], fields: Sequence[str], delimiter: str, width: int, certain: bool
) -> str:
    """Return what is wrong with the quotes of a row; "" if nothing is.

    A text that begins with a quote opens a field, which ends at the next quote, perhaps many rows below. Such a row
    differs from a text of several lines in this: its lines, taken alone, are rows of the table.
    """
    if certain or width == 1 or len(taken) == 1:
        return ""
    lines = [line.split(delimiter) for _, line in taken if line.strip()]
    alike = all(len(cells) == width and not any(cell.startswith(" ") for cell in cells[1:]) for cells in lines)
    n_quotes = sum(line.count('"') for _, line in taken)
    if not alike or n_quotes == sum(2 + 2 * field.count('"') for field in fields):  # all fields are in quotes
        return ""
    what = f"a quoted field goes over lines {taken[0][0]:,} to {taken[-1][0]:,}, and these are rows of {width} columns"
    return f"{what} themselves; {ADVICE}; if this is one text: --quotes yes"


def _reason(error: csv.Error, where: str) -> str:
    if "unexpected end" in str(error):
        return f"a quote is not closed {where}; {ADVICE}"
    if "new-line" in str(error):
        return f"a carriage return stands outside quotes {where}; save it with line feeds, or put the field in quotes"
    return f"a stray quote ({error}) {where}; {ADVICE}"


# --- JSON Lines ------------------------------------------------------------------------------------------------


def _json_rows(path: Path, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the object of each line; a first line that holds none ends the reading, for the others are like it."""
    for number, line in numbered_lines(path, diagnostics):
        try:
            value = json.loads(line, **_STRICT) if line.strip() else []
            if line.strip() and not isinstance(value, dict):
                raise ValueError(f"a JSON object is expected, not {type(value).__name__}")
        except (ValueError, RecursionError) as error:
            of_json = isinstance(error, json.JSONDecodeError)
            what = f"this is not JSON ({error.msg}, column {error.colno})" if of_json else str(error)
            diagnostics.error(path, number, "json", f"{what}; {OBJECTS}")
            if number == 1:
                return
        else:
            yield Row(number, value)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _finite(written: str) -> float:
    if not math.isfinite(number := float(written)):
        raise ValueError(f"{written} is no number of JSON")
    return number


_STRICT: Any = {"object_pairs_hook": _each_once, "parse_float": _finite, "parse_constant": _finite}
"""Refuses what JSON has not, and `json` reads."""

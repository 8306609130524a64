"""CSV, TSV and JSON Lines as rows with line numbers, read strictly and one row at a time.

Which of the columns are meant is decided in `columns.py`. A CSV follows RFC 4180: quotes may hold commas and
line breaks. A TSV has no quotes, unless all it has are plainly those of a CSV writer: a tab ends a field, a line a row.
Excel's first line `sep=;` names the delimiter of either. JSON Lines has one object a line.

A text that begins with a quote opens a quoted field, which ends at the next quote, perhaps many rows below. Such a row
differs from a text of several lines in this: each of its lines, taken alone, is a row of the table.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.datasets.labels import normalised_label
from glassformer.data.diagnostics import RETURNS_ALONE, Diagnostics, numbered_lines
from glassformer.data.sources import format_of, unreadable
from glassformer.errors import UsageError

LARGEST_FIELD = 1 << 30
"""Characters; `csv` refuses fields over 131,072 unless told."""
SAMPLE_LINES = 1000
"""Lines read before it is decided what delimits fields and whether quotes hold them."""
_SEPARATOR = re.compile(r'"?sep=(\\t|[^\w"]|"[^\w"]")"?[,;\t ]*', re.IGNORECASE)
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True)
class Row:
    """One row: the line it begins on, and its fields by position (CSV, TSV) or by name (JSON Lines).

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
                f"{path}: a table's name ends in .csv, .tsv or .jsonl, not {other or 'nothing'!r}",
                hint="rename the file after what it holds",
            )
    for row in rows:
        if row.fields or isinstance(row.fields, dict):
            yield row
        else:
            diagnostics.counts["empty lines"] += 1


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
    separator = _separator(head[first][1])
    if separator is not None:
        del head[first]
        diagnostics.counts["lines that name the delimiter"] += 1
        delimiter = separator
        is_csv |= delimiter != "\t"
        name = _DELIMITERS.get(delimiter, repr(delimiter))
        diagnostics.notes.append(f"{path.name}: columns are parted by {name}, as its first line says")
    else:
        delimiter = _delimiter(head[first][1], path, diagnostics) if is_csv else "\t"
    lines = itertools.chain(head, numbered)
    texts = [line for _, line in head if line.strip()]
    if not is_csv and not (texts and quotes_of_csv(texts)):
        yield from _tsv_rows(path, lines, diagnostics)
        return
    if not is_csv:
        diagnostics.notes.append(f"{path.name}: quotes around fields are read as those of a CSV")
    spaced = quotes_behind_spaces(texts, delimiter)
    if spaced:
        diagnostics.notes.append(f"{path.name}: spaces before quoted fields are left out")
    for row in _csv_rows(path, lines, delimiter, spaced, diagnostics):
        if separator is not None and not row.alone and _separator(delimiter.join(row.fields)) == separator:
            diagnostics.counts["lines that name the delimiter"] += 1
        else:
            yield row


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


def _delimiter(header: str, path: Path, diagnostics: Diagnostics) -> str:
    """Return a comma, unless the first line has none and has semicolons or tabs."""
    for other in (";", "\t"):
        if "," not in header and other in header:
            diagnostics.notes.append(f"{path.name}: columns are parted by {_DELIMITERS[other]}")
            return other
    return ","


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


MOST = 0.8
"""Share of a field's lines that must be rows of the table."""
FEWEST_LINES = 3
"""Fewest lines of such a field in a table without labels: the lines of a text can look like pairs."""
MOST_STRAY = 3
"""Where more fields than these, and a tenth of the rows, are such, the texts of a table without labels are like it."""

_WRITTEN = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class _Suspect:
    """A row over several lines, each of which has the table's number of columns."""

    line: int
    n_lines: int
    labels: tuple[str, ...]


class LineBreaks:
    """Counts the fields that hold line breaks, and finds the longest."""

    def __init__(self) -> None:
        self.n = 0
        self.longest = (0, 0, 0)

    def add(self, fields: Sequence[str], begins: int, ends: int) -> None:
        """Count the fields of a row over these lines."""
        self.n += sum("\n" in field for field in fields)
        self.longest = max(self.longest, (ends - begins + 1, begins, ends))

    def note(self, path: Path, diagnostics: Diagnostics) -> None:
        """Add the count and the lines of the longest row to the notes."""
        if self.n:
            n_lines, begins, ends = self.longest
            diagnostics.counts["fields over several lines"] += self.n
            what = "1 quoted field goes" if self.n == 1 else f"{self.n:,} quoted fields go"
            diagnostics.notes.append(
                f"{path.name}: {what} over several lines; the longest has {n_lines:,} (lines {begins:,} to {ends:,})"
            )


class JoinedRows:
    """Collects rows over several lines that may be many rows, joined by a stray quote.

    `label` is the position of the labels; None in a table without.
    """

    def __init__(self, n_columns: int, label: int | None) -> None:
        self.n_columns, self.label = n_columns, label
        self._suspects: list[_Suspect] = []
        self._long: list[_Suspect] = []  # of a table with one column, any line of which is a row

    def add(self, line: int, alone: Sequence[list[str]]) -> None:
        """Take a row as its lines, each split at the delimiters as if quotes were characters."""
        if self.n_columns == 1:
            self._long.append(_Suspect(line, len(alone), ()))
            return
        lines = [cells for cells in alone if any(cell.strip() for cell in cells)]
        rows = [cells for cells in lines if len(cells) == self.n_columns and self._is_row(cells, lines[-1])]
        if len(rows) > 1 and len(rows) >= MOST * len(lines) and rows[-1] is lines[-1]:
            labels = () if self.label is None else tuple(_label(cells[self.label]) for cells in rows)
            self._suspects.append(_Suspect(line, len(alone), labels))

    def report(self, path: Path, labels: Iterable[str], n_rows: int, diagnostics: Diagnostics) -> None:
        """Report the rows whose lines have labels of the table, and note the others.

        Without labels, those of enough lines are reported, unless there are so many that texts are like this.
        """
        known = {normalised_label(label) for label in labels if "\n" not in label} if self._suspects else set()
        few = len(self._suspects) <= max(MOST_STRAY, n_rows // 10)
        doubtful = list(self._long) if len(self._long) <= max(1, n_rows // 10) else []
        for suspect in self._suspects:
            own = Counter(suspect.labels)
            n_known = sum(n for label, n in own.items() if label in known or (n > 1 and len(own) < suspect.n_lines / 3))
            if n_known >= MOST * len(suspect.labels) if suspect.labels else few and suspect.n_lines >= FEWEST_LINES:
                _report_joined(path, suspect, self.n_columns, diagnostics)
            else:
                doubtful.append(suspect)
        if doubtful:
            shown = [f"{found.line:,} to {found.line + found.n_lines - 1:,}" for found in doubtful[:5]]
            where = ", ".join(shown) + (", …" if len(doubtful) > 5 else "")
            diagnostics.counts["texts whose lines look like rows"] += len(doubtful)
            diagnostics.notes.append(
                f"{path.name}: {len(doubtful):,} of the fields over several lines may be rows that a stray quote joins "
                f"(lines {where}): look at them"
            )

    def _is_row(self, cells: Sequence[str], last: Sequence[str]) -> bool:
        """Return False for prose: it has a space behind a comma, or a comma at the end of a line."""
        if self.label is None:
            return all(cell.strip() for cell in cells) and not any(cell.startswith(" ") for cell in cells[1:])
        if len(last) != self.n_columns or not cells[self.label].strip():
            return False
        return self.label == 0 or cells[self.label].startswith(" ") == last[self.label].startswith(" ")


def _report_joined(path: Path, suspect: _Suspect, n_columns: int, diagnostics: Diagnostics) -> None:
    last = suspect.line + suspect.n_lines - 1
    diagnostics.counts["rows joined by a stray quote"] += suspect.n_lines
    message = (
        f"a stray quote joins {suspect.n_lines:,} rows here: lines {suspect.line:,} to {last:,} are one field, and "
        f'each has the table\'s {n_columns} columns; double the quotes in texts (""), or, if this is one text, put '
        "every field of the file in quotes, its header too"
    )
    diagnostics.error(path, suspect.line, "quote", message)


def all_quoted(line: str, delimiter: str) -> bool:
    """Return whether each field of a line is in quotes, as `csv.QUOTE_ALL` writes it: then no quote is stray."""
    fields = rf"{_WRITTEN.pattern}(?:{re.escape(delimiter)}{_WRITTEN.pattern})*"
    return re.fullmatch(fields, line) is not None


def quotes_behind_spaces(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether quoted fields have spaces before them, as in `a, "b, c"`: no field of lines read so is uneven.

    Read as RFC 4180 says, such a quote is a character of the field, and a comma in it ends the field.
    """
    before = re.compile(rf'(?:^|{re.escape(delimiter)}) +"')
    if not any(before.search(line) for line in lines):
        return False
    strictly, spaced = (_read_sample(lines, delimiter, skip) for skip in (False, True))
    if spaced is None or len({len(row) for row in spaced}) > 1:
        return False
    quoted = [field for row in strictly or () for field in row if re.match(r' +"', field)]
    return strictly is None or bool(quoted)


def _read_sample(lines: Sequence[str], delimiter: str, skip_spaces: bool) -> list[list[str]] | None:
    """Return lines as rows; the last is left out, as it may go on. None where a quote is stray."""
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True, skipinitialspace=skip_spaces)
    rows: list[list[str]] = []
    try:
        rows.extend(reader)
    except csv.Error as error:
        if "unexpected end" not in str(error):
            return None
    return rows[:-1] if len(rows) > 2 else rows


def quotes_of_csv(lines: Sequence[str]) -> bool:
    """Return whether the quotes in lines of a TSV are those of a CSV writer.

    Each field with a quote begins and ends with one and has others doubled; and one of them has, or the header's are
    all in quotes. A text that is itself in quotes is no sign.
    """
    fields = [field for line in lines if '"' in line for field in line.split("\t") if '"' in field]
    if not fields or not all(_WRITTEN.fullmatch(field) for field in fields):
        return False
    return all_quoted(lines[0], "\t") or any('""' in field[1:-1] for field in fields)


def note_literal_quotes(path: Path, n: int, diagnostics: Diagnostics) -> None:
    """Report the fields of a TSV that begin and end with a quote that is kept."""
    if n:
        diagnostics.counts["fields in quotes, which a TSV keeps"] += n
        fields = "1 field begins and ends" if n == 1 else f"{n:,} fields begin and end"
        diagnostics.notes.append(
            f"{path.name}: {fields} with a quote, kept as text because a TSV has no quotes; if they are those of a "
            "CSV, name the file .csv"
        )


def _label(cell: str) -> str:
    return normalised_label(cell.strip().strip('"'))

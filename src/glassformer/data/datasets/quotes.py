"""Quotes in tables: whose they are, and rows that a stray one joins.

A text that begins with a quote opens a quoted field, which ends at the next quote, perhaps many rows below. Such a row
differs from a text of several lines in this: each of its lines, taken alone, is a row of the table.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.data.datasets.labels import normalised_label
from glassformer.data.datasets.numbers import is_number
from glassformer.data.diagnostics import Diagnostics

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

    `label` is the position of the labels; None in a table without. Labels `of_numbers` need not come again.
    """

    def __init__(self, n_columns: int, label: int | None, of_numbers: bool = False) -> None:
        self.n_columns, self.label, self.of_numbers = n_columns, label, of_numbers
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
            repeated = len(own) < suspect.n_lines / 3
            n_known = sum(
                n
                for label, n in own.items()
                if label in known or (n > 1 and repeated) or (self.of_numbers and is_number(label))
            )
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
    if _whole_rows_are_quoted(lines):
        return True
    fields = [field for line in lines if '"' in line for field in line.split("\t") if '"' in field]
    if not fields or not all(_WRITTEN.fullmatch(field) for field in fields):
        return False
    return all_quoted(lines[0], "\t") or any('""' in field[1:-1] for field in fields)


def _whole_rows_are_quoted(lines: Sequence[str]) -> bool:
    """Return whether each row of a TSV has all its fields in quotes; a row continues while a quote is open."""
    n_rows, row, is_open = 0, list[str](), False
    for line in lines:
        row.append(line)
        is_open ^= line.count('"') % 2 == 1
        if not is_open:
            if not all_quoted("\n".join(row), "\t"):
                return False
            n_rows, row = n_rows + 1, []
    return n_rows > 0


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

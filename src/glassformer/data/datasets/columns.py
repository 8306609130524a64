"""Finds the text and target columns of a table: by flag, by a usual name in the header, or by their values.

By values the label is the column with the fewest different ones, the text the column with the longest, and of
sentence pairs the first two columns that are no identifiers. Guesses are reported. Files are read by `tables.py`;
`headers.py` recognises a header, `labels.py` spells labels one way.
"""

from __future__ import annotations

import difflib
import itertools
import shlex
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from glassformer.data.datasets import headers
from glassformer.data.datasets.headers import unnested_rows
from glassformer.data.datasets.labels import (
    clean_label_sets,
    clean_labels,
    joined_labels,
    label_of_number,
    normalised_label,
)
from glassformer.data.datasets.numbers import heads_numbers, number_rank
from glassformer.data.datasets.quotes import JoinedRows
from glassformer.data.datasets.tables import Row, other_delimiter, read_rows
from glassformer.data.diagnostics import Diagnostics, encoding_issue
from glassformer.data.splits import Split
from glassformer.errors import DataError, UsageError
from glassformer.text.pairs import join_pair, pair_issue
from glassformer.utils.formatting import counted

SAMPLE_ROWS = 1000
"""Rows read before columns are chosen."""


@dataclass(frozen=True)
class ColumnSpec:
    """A column that a task reads.

    Args:
        name: its name in messages.
        flag: the flag that selects the column.
        usual: usual headers, the likeliest first.
        requested: the header given with the flag; None to guess.
        separator: what parts the labels of a cell, where a text may have several.
        trained: the header of the column in training, where that is known.
        place: of a column of a table without a header its position in training, and the fields of its rows.
    """

    name: str
    flag: str
    usual: tuple[str, ...]
    requested: str | None = None
    separator: str | None = None
    trained: str | None = None
    place: tuple[int, int] | None = None

    @property
    def is_label(self) -> bool:
        return self.name in ("label", "number")

    @property
    def is_number(self) -> bool:
        return self.name == "number"

    def preferring(self, header: str | None) -> ColumnSpec:
        """Return a copy that tries this header first (the one found in another part of the data)."""
        return self if header is None else replace(self, usual=(header.strip().lower(), *self.usual))


ColumnSpecs = tuple[ColumnSpec, ...]
_TEXTS = """text review sentence content comment message body tweet post document question utterance phrase
description abstract headline title"""
_LABELS = "label labels class category sentiment target intent topic emotion polarity rating stars score y"
_NUMBERS = "stars score rating ratings target value number price"
_SOURCES = "src source source_text input original from"
_TARGETS = "tgt trg target target_text translation output to"
TEXT = ColumnSpec("text", "--text-column", tuple(_TEXTS.split()))
LABEL = ColumnSpec("label", "--label-column", tuple(_LABELS.split()))
LABELS = ColumnSpec("label", "--label-column", ("labels", "tags", "categories", "topics", *_LABELS.split()), None, ";")
NUMBER = ColumnSpec("number", "--label-column", tuple(_NUMBERS.split()))
SOURCE = ColumnSpec("source", "--src-column", tuple(_SOURCES.split()))
TARGET = ColumnSpec("target", "--tgt-column", tuple(_TARGETS.split()))


@dataclass(frozen=True)
class Rows:
    """Texts with their targets (none, if they stand alone), the line each row begins on, and the columns' headers.

    `label_guessed` says that no flag named the column of labels.
    """

    text: list[str]
    answer: list[str]
    lines: Sequence[int]
    path: Path
    columns: tuple[str | None, ...] = (None, None)
    resolved: ResolvedColumns | None = None
    label_guessed: bool = False

    def split(self) -> Split:
        return Split(self.text, self.answer if len(self.columns) > 1 else None, str(self.path))


@dataclass(frozen=True)
class ResolvedColumns:
    """The columns to read by position (JSON: by name), their headers, and the fields per row; 0 in JSON: any number."""

    keys: tuple[int, ...] | tuple[str, ...]
    headers: tuple[str | None, ...]
    n_fields: int = 0
    has_header: bool = False


FindColumns: TypeAlias = Callable[[Path, Sequence[Row], ColumnSpecs, Diagnostics], ResolvedColumns | None]
"""Finds columns in the first rows of a table in a way of its own; None to guess them."""


def read_table(
    path: Path, specs: ColumnSpecs, diagnostics: Diagnostics, find_columns: FindColumns | None = None
) -> Rows:
    """Read columns of a CSV, TSV or JSON Lines file; rows with an error are skipped.

    Columns that were guessed are a note. `find_columns` is tried first.

    Raises:
        UsageError: the file's suffix is unknown, or a requested column is missing.
    """
    rows = read_rows(path, diagnostics)
    if not specs[-1].is_label:
        rows = unnested_rows(rows, [(spec.requested, spec.usual) for spec in specs])
    sample = list(itertools.islice(rows, SAMPLE_ROWS))
    columns = find_columns(path, sample, specs, diagnostics) if sample and find_columns else None
    columns = columns or (resolve_columns(path, sample, specs, diagnostics) if sample else None)
    if columns is None:
        deque(rows, maxlen=0)  # to the end, so that every error is reported
        return Rows([], [], [], path, (None,) * len(specs))
    lines, texts, targets = array("q"), list[str](), list[str]()
    of_label = specs[-1].is_label
    place = int(columns.keys[-1]) if of_label and columns.n_fields else None
    joined = JoinedRows(columns.n_fields, place, specs[-1].is_number)
    usual, named = [spec.usual for spec in specs], any(spec.requested for spec in specs)
    first = headers.first_row(columns.has_header, list(sample[0].fields), usual, named)
    below = headers.without_headers(path, itertools.chain(sample, rows), first, joined, diagnostics)
    for row in below:
        if (values := row_values(row, columns, specs, path, diagnostics)) is not None:
            lines.append(row.line)
            texts.append(values[0])
            targets += values[1:]
    if of_label:
        if columns.n_fields:
            ends = usual[0], usual[-1]
            lines, texts, targets = headers.without_named_rows(path, (lines, texts, targets), ends, diagnostics)
        joined.report(path, targets, len(texts), diagnostics)
        separator = specs[-1].separator
        if specs[-1].is_number:
            targets = [normalised_label(target) for target in targets]
        elif separator is None:
            targets = clean_labels(path, lines, targets, diagnostics)
        else:
            targets = clean_label_sets(path, lines, targets, separator, diagnostics)
    else:
        joined.report(path, (), len(texts), diagnostics)
    guessed = of_label and specs[-1].requested is None
    return Rows(texts, targets, lines, path, columns.headers, columns, guessed)


def resolve_columns(
    path: Path, sample: list[Row], specs: ColumnSpecs, diagnostics: Diagnostics
) -> ResolvedColumns | None:
    """Choose the columns to read; None after reporting that there are too few."""
    first = sample[0].fields
    n_columns = len(first if isinstance(first, list) else json_names(sample))
    if n_columns < len(specs):
        number = "two" if len(specs) < 3 else "three"
        there = f"there {'is' if n_columns == 1 else 'are'} {n_columns}"
        needed = f"{number} columns are needed ({' and '.join(spec.name for spec in specs)}), but {there}"
        diagnostics.error(path, sample[0].line, "columns", needed + other_delimiter([row.fields for row in sample]))
        return None
    resolve = _resolve_delimited if isinstance(first, list) else _resolve_json
    columns = resolve(path, sample, specs)
    if not all(spec.requested for spec in specs):
        _note_guess(path, columns, specs, diagnostics)
    return columns


def _resolve_json(path: Path, sample: list[Row], specs: ColumnSpecs) -> ResolvedColumns:
    names = json_names(sample)
    body = [[str(_fields(row).get(name, "")) for name in names] for row in sample]
    chosen = _by_values(_by_header(path, names, specs), body, specs, len(names))
    headers = tuple(names[i] for i in chosen)
    return ResolvedColumns(headers, headers)


def _resolve_delimited(path: Path, sample: list[Row], specs: ColumnSpecs) -> ResolvedColumns:
    names, *body = [row.fields for row in sample if isinstance(row.fields, list)]
    body = [fields for fields in body if len(fields) == len(names)]
    numbers = [_number(spec, names) for spec in specs]
    by_name = any(spec.requested and number is None for spec, number in zip(specs, numbers, strict=True))
    if by_name or _has_header(names, body, specs):  # a name that is a number is that of a header, where there is one
        chosen = _by_values(_by_header(path, names, specs), body, specs, len(names))
        return ResolvedColumns(chosen, tuple(names[i] for i in chosen), len(names), has_header=True)
    if len({*numbers} - {None}) < sum(number is not None for number in numbers):
        raise UsageError(f"{path}: two columns have one number", "name another for one")
    for k, spec in enumerate(specs):
        if numbers[k] is None and spec.place is not None and spec.place[1] == len(names):
            numbers[k] = spec.place[0]
    chosen = _by_values(numbers, [names, *body], specs, len(names))
    return ResolvedColumns(chosen, (None,) * len(specs), len(names))


def _note_guess(path: Path, columns: ResolvedColumns, specs: ColumnSpecs, diagnostics: Diagnostics) -> None:
    named = None not in columns.headers
    shown = [repr(name) for name in columns.headers] if named else [f"number {int(key) + 1}" for key in columns.keys]
    free = [(spec, column) for spec, column in zip(specs, shown, strict=True) if not spec.requested]
    guesses = ", ".join(f"{spec.name} is column {column}" for spec, column in free)
    nothing = "" if named else "there is no header line; "
    places = [(key, columns.n_fields) for key in columns.keys]
    if named and tuple(spec.trained for spec in specs) == columns.headers:
        guesses = ", ".join(f"{spec.name} is column {spec.trained!r}" for spec in specs)
        how = ", as in training"
    elif all(spec.requested or spec.place == place for spec, place in zip(specs, places, strict=True)):
        how = f", as in training{'' if named else '; there is no header line'}"
    else:
        how = f" (guessed; {nothing}{' and '.join(spec.flag for spec, _ in free)} choose{'s' * (len(free) == 1)})"
    diagnostics.notes.append(f"{path.name}: {guesses}{how}")


def _has_header(names: Sequence[str], body: list[list[str]], specs: ColumnSpecs) -> bool:
    if specs[-1].is_number and (found := heads_numbers(names, body)) is not None:
        return found
    return headers.has_header(names, body, [spec.usual for spec in specs], of_label=specs[-1].is_label)


def _by_header(path: Path, names: Sequence[str], specs: ColumnSpecs) -> list[int | None]:
    """Find the requested columns in the header, and usual names for the others."""
    lowered = [headers.plain(name) for name in names]
    chosen: list[int | None] = [None] * len(specs)
    for k, spec in enumerate(specs):
        if spec.requested is None:
            continue
        wanted = spec.requested if spec.requested in names else headers.plain(spec.requested)
        found = [i for i, name in enumerate(names if spec.requested in names else lowered) if name == wanted]
        if not found and (number := _number(spec, names)) is not None:
            found = [number]
        if not found:
            close = difflib.get_close_matches(spec.requested, names, 1)
            all_of = f"its columns: {', '.join(names)}; or give a number from 1 to {len(names)}"
            hint = f"did you mean {spec.flag} {_quoted(close[0])}?" if close else all_of
            raise UsageError(f"{path}: there is no column {spec.requested!r}", hint)
        if found[0] in chosen and any(other.name == "pair" for other in specs):
            twice = specs[chosen.index(found[0])].flag
            raise UsageError(f"{twice} and {spec.flag} name one column, {spec.requested!r}", "name another for one")
        chosen[k] = only_column(path, found, names)
    for k, spec in enumerate(specs):
        if chosen[k] is None:
            candidates = (lowered.index(usual) for usual in spec.usual if usual in lowered)
            chosen[k] = next((i for i in candidates if i not in chosen), None)
            if (first := chosen[k]) is not None:
                only_column(path, [i for i, name in enumerate(lowered) if name == lowered[first]], names)
    return chosen


def _number(spec: ColumnSpec, names: Sequence[str]) -> int | None:
    """Return the place of the column that is requested by its number, counted from 1; None for a name."""
    wanted = spec.requested
    return int(wanted) - 1 if wanted in [str(number + 1) for number in range(len(names))] else None


def only_column(path: Path, found: Sequence[int], names: Sequence[str]) -> int:
    """Return the only column of a name; raise DataError if it stands twice in the header."""
    if len(found) > 1:
        shown = ", ".join(repr(names[i]) for i in found)
        where = " and ".join(str(i + 1) for i in found)
        raise DataError(f"{path}: columns {where} have one name ({shown})", "give each column a name of its own")
    return found[0]


def _quoted(word: str) -> str:
    """Return a word for the shell, always in quotes."""
    return quoted if (quoted := shlex.quote(word)) != word else f"'{word}'"


def _by_values(chosen: list[int | None], body: list[list[str]], specs: ColumnSpecs, n_columns: int) -> tuple[int, ...]:
    """Fill in the columns that the header did not determine."""
    order = range(len(specs))
    for k in reversed(order) if specs[-1].is_label else order:  # a label is easier to recognise than a text
        if chosen[k] is not None:
            continue
        free = [i for i in range(n_columns) if i not in chosen]
        if specs[k].is_label:
            rank = number_rank if specs[k].is_number else headers.label_rank
            chosen[k] = min(free, key=lambda i: rank([row[i] for row in body]))
        elif specs[-1].is_label or len(specs) == 1:
            chosen[k] = headers.longest_column(free, body)
        else:
            chosen[k] = next((i for i in headers.sentence_columns(body, n_columns) if i in free), free[0])
    return tuple(i for i in chosen if i is not None)


def _fields(row: Row) -> dict[str, Any]:
    return row.fields if isinstance(row.fields, dict) else {}


def json_names(rows: list[Row]) -> list[str]:
    """Return the keys of the objects, in the order in which they appear."""
    return list(dict.fromkeys(key for row in rows for key in _fields(row)))


def row_values(
    row: Row, columns: ResolvedColumns, specs: ColumnSpecs, path: Path, diagnostics: Diagnostics
) -> tuple[str, ...] | None:
    """Return a row's values, the two texts of a pair as one; None after reporting why there are none."""
    values = _row_values(row, columns, specs, path, diagnostics)
    if values is None or len(specs) < 2 or specs[1].name != "pair":
        return values
    if issue := pair_issue(*values[:2]):
        diagnostics.error(path, row.line, "pair", issue)
        return None
    return (join_pair(*values[:2]), *values[2:])


def _row_values(
    row: Row, columns: ResolvedColumns, specs: ColumnSpecs, path: Path, diagnostics: Diagnostics
) -> tuple[str, ...] | None:
    if isinstance(row.fields, list):
        if len(row.fields) != columns.n_fields:
            are = "is" if columns.n_fields == 1 else "are"
            message = f"{counted(columns.n_fields, 'columns')} {are} expected, but there are {len(row.fields)}"
            diagnostics.error(path, row.line, "columns", message)
            return None
        return tuple(row.fields[int(key)] for key in columns.keys)
    values = []
    for key, spec in zip(columns.keys, specs, strict=True):
        value = _fields(row).get(str(key))
        if isinstance(value, list) and spec.separator is not None:
            try:
                value = joined_labels(value, spec.separator)
            except ValueError as error:
                diagnostics.error(path, row.line, "label", str(error))
                return None
        if spec.is_number and isinstance(value, bool | int | float):
            value = str(value).lower()  # true, nan and inf are no numbers, which is noted with the other targets
        elif spec.is_label and isinstance(value, bool | int | float):
            try:
                written, value = value, label_of_number(value)
            except ValueError as error:
                diagnostics.error(path, row.line, "label", f"the label is {error}")
                return None
            diagnostics.counts["labels written as 1.0 and read as 1"] += isinstance(written, float) and "." not in value
        if not isinstance(value, str):
            missing = f"{key!r} is null" if str(key) in _fields(row) else f"there is no {key!r}"
            message = missing if value is None else f"{key!r} is not a string"
            diagnostics.error(path, row.line, "columns", message)
            return None
        if issue := encoding_issue(value):
            diagnostics.error(path, row.line, *issue)
            return None
        values.append(value)
    return tuple(values)


@dataclass(frozen=True)
class DataSchema:
    """A task's input: texts with targets, texts alone, or running text.

    Args:
        task: its name, for messages.
        columns: the columns of a table, (text, target), or (text,) alone; None for running text.
        parallel: whether two files with matching lines may replace a table.
        check: reports targets that cannot be used, given the rows of all parts ("train", "valid", "test").
        read: reads a file that is no table of these columns; the columns say what flags name.
        count: counts what `data check` prints of a part, by name.
    """

    task: str
    columns: tuple[ColumnSpec, ...] | None = None
    parallel: bool = False
    check: Callable[[Mapping[str, Rows], Diagnostics], None] = lambda rows, diagnostics: None
    read: Callable[[Path, ColumnSpecs, Diagnostics], Rows] | None = None
    count: Callable[[Split], Mapping[str, int]] = lambda split: {}

    @property
    def target(self) -> str | None:
        """Name of the targets ("label", "target"); "" for texts alone, None for running text."""
        if self.columns is None:
            return None
        return self.columns[1].name if len(self.columns) > 1 else ""

    def accepts(self, target: str | None) -> bool:
        """Return whether a data set with these targets can be read; labels and document borders may be ignored."""
        return target == self.target or (self.target == "" and target != "target")

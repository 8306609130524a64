"""The columns of a table that a task reads, by flag, by a usual name in the header, or by their position.

The first row is a header where a flag says so (`--header yes`), where a flag names one of its cells, or where every
column that is looked for has a usual name in it that is no value below. It is none where no cell has a usual name and
its answer comes again below. Anything else is refused with both commands. Columns without a known name are taken by
position only where there are as many as are needed. What was chosen for training is kept with the run, and required in
every table that is read later.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from glassformer.data.datasets.labels import (
    FLAGS,
    NAMES_OF_LABELS,
    clean_label_sets,
    clean_labels,
    count_missing,
    is_number,
    joined_labels,
    label_of_number,
    normalised_label,
    visible,
)
from glassformer.data.datasets.tables import Row, read_rows
from glassformer.data.diagnostics import Diagnostics, encoding_issue
from glassformer.data.splits import Split
from glassformer.errors import DataError, UsageError
from glassformer.text.pairs import SEPARATOR, join_pair, pair_issue
from glassformer.utils.formatting import counted, shortened

SAMPLE_ROWS = 1000
"""Rows read before columns are chosen."""
REJECTED = {"answer": ("reject", "ignore"), "status": ("discarded",), "was_cancelled": ("true",)}
"""Fields by which Prodigy, Argilla and Label Studio mark an annotation that was rejected."""
LONGEST_NAME = 100
"""Characters from which a cell is not compared with a header."""
SUBHEADERS = {"response", "open-ended response"}
"""Names in the second of the two headers that SurveyMonkey writes."""
LONGEST_LIST = 300
"""Characters of the names of columns in a message."""
WORDS_OF_TEXT = 3
"""Mean number of words from which a column that is not read is named, since it may hold the second text of pairs."""
Clean: TypeAlias = Callable[[Path, Sequence[int], Sequence[str], str, Diagnostics], list[str]]


def few_values(values: Sequence[str]) -> str:
    """Return why values are not taken for labels by their position, if over half of them differ; "" if they are."""
    n = len(set(values))
    return f"{n:,} different values in {len(values):,} rows" if n > len(values) / 2 else ""


def all_numbers(values: Sequence[str]) -> str:
    """Return why values are not numbers by their position; "" if they are."""
    return next((f"{value[:40]!r} is no number" for value in values if not is_number(value)), "")


@dataclass(frozen=True)
class ColumnSpec:
    """A column that a task reads.

    Args:
        name: its name in messages.
        flag: the flag that selects the column.
        usual: usual headers, the likeliest first.
        requested: the header, or the number from 1, given with the flag.
        separator: what parts the labels of a cell, where a text may have several.
        trained: the header of the column in training, where that had one, and then required.
        place: of a column of a table without a header its position in training, and the fields of its rows.
        doubt: returns why values are not taken for this column by its position; "" where they are.
        clean: spells the cells of the column one way; None leaves them as they are.
    """

    name: str
    flag: str
    usual: tuple[str, ...]
    requested: str | None = None
    separator: str | None = None
    trained: str | None = None
    place: tuple[int, int] | None = None
    doubt: Callable[[Sequence[str]], str] = lambda values: ""
    clean: Clean | None = None

    @property
    def position(self) -> int | None:
        """Return the position that a flag names, which counts from 1; None where it names a header, or none does."""
        return int(self.requested) - 1 if self.requested and self.requested.isdecimal() else None

    def cell(self, value: Any) -> str:
        """Return a value that is no string as the cell of a label, several, or a number; raise ValueError."""
        if self.clean and isinstance(value, list):
            if self.separator is None:
                raise ValueError("is a list; `multilabel` reads texts with several labels")
            return joined_labels(value, self.separator)
        if self.clean and isinstance(value, dict):
            raise ValueError("is an object; write the name of the label, or a list of names")
        if self.clean and isinstance(value, bool | int | float | Decimal):
            return label_of_number(value)
        raise ValueError(f"is {str(value)[:40]}, which is not a string")

    def parts(self, cell: str) -> list[str]:
        """Return the labels of a cell, as they are compared."""
        return [plain(part) for part in (cell.split(self.separator) if self.separator else [cell])]


ColumnSpecs = tuple[ColumnSpec, ...]
_TEXTS = """text review sentence content comment message body tweet post document question utterance phrase
description abstract headline title"""
_LABELS = "label labels class category sentiment target intent topic emotion polarity rating stars score y"
_NUMBERS = "stars score rating ratings target value number price label labels y"
_FIRSTS = "premise sentence1 sentence_1 question1 text_a text1 sentence_a query"
_SOURCES = "src source source_text input original from"
_TARGETS = "tgt trg target target_text translation output to"
TEXT = ColumnSpec("text", "--text-column", tuple(_TEXTS.split()))
FIRST = replace(TEXT, usual=(*_FIRSTS.split(), *TEXT.usual))
SECOND = ColumnSpec("pair", "--pair-column", ())
LABEL = ColumnSpec("label", "--label-column", tuple(_LABELS.split()), doubt=few_values, clean=clean_labels)
LABELS = replace(
    LABEL, usual=("labels", "tags", "categories", "topics", *LABEL.usual), separator=";", clean=clean_label_sets
)
NUMBER = replace(LABEL, name="number", usual=tuple(_NUMBERS.split()), doubt=all_numbers)
NUMBER = replace(NUMBER, clean=lambda path, lines, cells, separator, diagnostics: [*map(normalised_label, cells)])
SOURCE = ColumnSpec("source", "--src-column", tuple(_SOURCES.split()))
TARGET = ColumnSpec("target", "--tgt-column", tuple(_TARGETS.split()))
USUAL = f"{_TEXTS} {_LABELS} {_NUMBERS} {_FIRSTS}".split()
"""The usual headers of the columns of all tasks."""


@dataclass(frozen=True)
class Columns:
    """The columns to read by position (JSON: by name), their headers, and the fields per row; 0 in JSON: any number.

    A header is None where a table has none, and "" in a file with a word a line, whose places say nothing of a table.
    """

    keys: tuple[int | str, ...]
    headers: tuple[str | None, ...]
    n_fields: int = 0
    has_header: bool = False

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Columns | None:
        """Return columns that a run keeps as JSON; None where the data was no table."""
        return msgspec.convert(value, Columns) if value else None


def read_table(path: Path, specs: ColumnSpecs, diagnostics: Diagnostics) -> Split:
    """Read columns of a table; rows with an error are reported and left out. What was decided is a note.

    Raises:
        UsageError: the file's suffix is unknown, a column is missing, or it is not clear what the first row is.
    """
    columns, rows, names = open_table(path, specs, diagnostics)
    if columns is None:
        return Split([], [] if specs[1:] else None, str(path))
    lines, texts, answers, last = array("q"), list[str](), list[str](), specs[-1]
    for row in _to_the_last(rows, diagnostics):
        fields = row.fields if isinstance(row.fields, dict) else dict(zip(names, row.fields, strict=False))
        if len(specs) > 1 and (rejected := why_rejected(fields, columns.headers)):
            diagnostics.error(path, row.line, "label", rejected)
        elif (values := row_values(row, columns, specs, path, diagnostics)) is not None:
            lines.append(row.line)
            texts.append(values[0])
            answers += values[1:]
    sides = [side for text in texts for side in text.split(f" {SEPARATOR} ")]
    count_missing(path, sides if last.clean else sides + answers, diagnostics)
    if last.clean is not None:
        answers = last.clean(path, lines, answers, last.separator or "", diagnostics)
    return Split(texts, answers if specs[1:] else None, str(path), lines, columns)


def open_table(
    path: Path, specs: ColumnSpecs, diagnostics: Diagnostics
) -> tuple[Columns | None, Iterator[Row], Sequence[str]]:
    """Return the columns to read, the rows below the header, and all names; no columns where that was reported."""
    rows = read_rows(path, diagnostics)
    sample = list(itertools.islice(rows, SAMPLE_ROWS))
    if not sample or path in diagnostics.cut:
        deque(rows, maxlen=0)  # to the end, so that every error is reported
        return None, iter(()), []
    columns = choose_columns(path, sample, specs, diagnostics)
    names = [*sample[0].fields] if columns.has_header else []
    return columns, below_header(path, itertools.chain(sample, rows), columns, diagnostics), names


def plain(name: str) -> str:
    """Return a cell as headers are compared: lower case, without spaces around it and invisible characters."""
    return normalised_label(name).lower()


# --- which columns ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """The cells of the first row of a table, the first rows of values, and whether there is a header."""

    path: Path
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    header: bool

    def column(self, i: int) -> list[str]:
        return [row[i] for row in self.rows]

    def place_of(self, spec: ColumnSpec) -> int | None:
        """Return the place of the column that a flag, or else training, names; None where there is none."""
        wanted = spec.requested or spec.trained
        if spec.position is not None or not self.header or wanted is None:
            return spec.position
        alike = [i for i, name in enumerate(self.names) if plain(name) == plain(wanted)]
        return next((i for i in alike if self.names[i] == wanted), alike[0] if alike else None)

    def refuse_absent(self, specs: ColumnSpecs) -> None:
        """Raise UsageError of all columns that flags or training name and that are not there."""
        named = [spec for spec in specs if spec.requested or (spec.trained and len(self.names) > 1)]
        if absent := [spec for spec in named if self.place_of(spec) not in range(len(self.names))]:
            shown = " and ".join(repr(spec.requested or spec.trained) for spec in absent)
            trained = "" if absent[0].requested else ", which the training data has"
            are = "are no columns" if len(absent) > 1 else "is no column"
            hint = f"name it, or give its number from 1: {' '.join(spec.flag for spec in absent)}"
            raise UsageError(f"{self.path}: there {are} {shown}{trained}; {self.there()}", hint)

    def there(self) -> str:
        if self.header:
            return f"its columns: {shortened(', '.join(self.names), LONGEST_LIST)}"
        return f"it has {counted(len(self.names), 'columns')}, and no header (if it has: --header yes)"

    def hint(self, specs: ColumnSpecs, found: Sequence[object]) -> str:
        """Return the flags of the columns that were not found, or what to write instead of columns of 0 and 1."""
        called = [name if self.header else str(i + 1) for i, name in enumerate(self.names)]
        of_flags = [FLAGS.issuperset(map(plain, self.column(i))) for i in range(len(called)) if self.rows]
        binary = [*itertools.compress(called, of_flags)]
        unknown = [spec for spec, place in zip(specs, found, strict=True) if place in (None, set())]
        if specs[-1].clean and specs[-1] in unknown and len(binary) > 1:
            return f"{shortened(', '.join(binary), LONGEST_LIST)} hold 0 and 1: {NAMES_OF_LABELS}"
        flags = " ".join(f"{spec.flag} …" for spec in unknown) or "all are known"
        return f"name what is read, by header or by number from 1: {flags}"


def choose_columns(path: Path, sample: Sequence[Row], specs: ColumnSpecs, diagnostics: Diagnostics) -> Columns:
    """Choose the columns to read, with a note on them.

    Raises:
        UsageError: a column is missing, or it is not clear what the first row is.
        DataError: there are too few, or two have one name.
    """
    first, header = sample[0].fields, diagnostics.form.header
    of_json = isinstance(first, dict)
    names = [*dict.fromkeys(name for row in sample for name in row.fields)] if of_json else [*first]
    if len(names) < len(specs):
        needed = f"{counted(len(specs), 'columns')} are needed ({' and '.join(spec.name for spec in specs)})"
        title = f"if line {sample[0].line:,} is a title or a comment, take it out"
        hint = f"write a field for each, or name the delimiter: --delimiter; {title}"
        raise DataError(f"{path}: {needed}, but the first row has {len(names)}", hint)
    if of_json:
        values = ([row.fields.get(name) for name in names] for row in sample if isinstance(row.fields, dict))
        below = [["" if value is None else str(value) for value in row] for row in values]
    else:
        below = [row.fields for row in sample[1:] if isinstance(row.fields, list) and len(row.fields) == len(names)]
    has_names = of_json or (header == "yes" if header else has_header(path, names, below, specs))
    table = _Table(path, names, below if has_names else [names, *below], has_names)
    table.refuse_absent(specs)
    places = _places(table, specs)
    if has_names and not of_json and header is None and table.rows:
        _refuse_second_header(table, places, specs[-1], sample[1].line)
    _note(table, places, specs, diagnostics)
    headers = tuple(names[i] if has_names else None for i in places)
    if of_json:
        return Columns(tuple(names[i] for i in places), headers)
    return Columns(places, headers, len(names), has_names)


def has_header(path: Path, names: Sequence[str], below: Sequence[Sequence[str]], specs: ColumnSpecs) -> bool:
    """Return whether the first row of a table is its header; raise UsageError where it may be one or not."""
    table, lowered, last = _Table(path, names, below, True), [plain(name) for name in names], specs[-1]
    if any(spec.position is None and table.place_of(spec) is not None for spec in specs):
        return True
    table.refuse_absent(tuple(spec for spec in specs if spec.requested))
    below = [row for row in below if [plain(cell) for cell in row] != lowered]  # without a header that comes again
    values = [{part for row in below for part in last.parts(row[i])} for i in range(len(names))]
    usual = [
        {i for i, name in enumerate(lowered) if spec.position in (None, i) and name in spec.usual} for spec in specs
    ]
    if all(any(lowered[i] not in values[i] for i in places) for places in usual):
        return True
    if may_be_pairs(specs) and not usual[0] and usual[1] and (first := {*lowered}.intersection(_FIRSTS.split())):
        what = f"{path}: by its name the column {min(first)!r} holds the first text of a pair"
        raise UsageError(what, f"name that of the second: {SECOND.flag} …; to read one alone: {TEXT.flag} …")
    read = [spec.position for spec in specs if spec.position is not None] or range(len(names))
    single = not any(" " in names[i].strip() for i in read)  # words above texts of several
    of_words = single and all(2 * sum(" " in row[i].strip() for row in below) > len(below) > 1 for i in read)
    others = () if last.doubt is few_values else USUAL  # no sentence is a usual name
    named = ((spec.trained and not spec.requested) or {*lowered} & {*spec.usual, *others} for spec in specs)
    doubtful = of_words or any(named)
    if all(spec.place for spec in specs) or not doubtful:
        known = next((i for i in (last.position, last.place and last.place[0]) if i is not None), None)
        places = range(len(names)) if known is None else [known]
        for i in [i for i in places if lowered[i] and not last.doubt([row[i] for row in (names, *below)])][-1:]:
            if last.doubt is not few_values or values[i].issuperset(last.parts(names[i])):
                return False
    shown = ", ".join(repr(name[:40]) for name in names[:6])
    hint = f"say which: --header yes or --header no; if yes, {table.hint(specs, usual)}"
    raise UsageError(f"{path}: its first row may be a header or an example ({shown})", hint)


def _places(table: _Table, specs: ColumnSpecs) -> tuple[int, ...]:
    """Return the place of each column; raise UsageError where some are not known."""
    path, names, lowered, places = table.path, table.names, [plain(name) for name in table.names], list[int | None]()
    for spec in specs:
        place = table.place_of(spec)
        if place is None and table.header:
            usual = (lowered.index(name) for name in spec.usual if name in lowered)
            place = next((i for i in usual if i not in places), None)
        elif place is None and spec.place and spec.place[1] == len(names):
            place = spec.place[0]
        if place is not None and table.header:
            exact = names[place] in (spec.requested, spec.trained)
            same = [name for name in names if name == names[place] or (not exact and plain(name) == lowered[place])]
            if len(same) > 1:
                message = f"{path}: {len(same)} columns have one name ({', '.join(map(repr, same))})"
                raise DataError(message, "give each column a name of its own")
        if place is not None and place in places:
            other = specs[places.index(place)].name
            raise UsageError(f"{path}: {spec.flag} names the column of the {other}", "name another for one")
        places.append(place)
    unknown = " and ".join(spec.name for spec, place in zip(specs, places, strict=True) if place is None)
    hint = table.hint(specs, places)
    if unknown and len(names) != len(specs):
        what = f"{path}: there is no column that is known to hold the {unknown}"
        raise UsageError(f"{what}; {table.there()}", hint)
    for k in reversed(range(len(specs))):
        if places[k] is None:
            doubts = {i: specs[k].doubt(table.column(i)) for i in range(len(names)) if i not in places}
            if (place := max((i for i in doubts if not doubts[i]), default=None)) is None:
                i, doubt = doubts.popitem()
                raise UsageError(f"{path}: the {specs[k].name} is not known; column {i + 1} has {doubt}", hint)
            places[k] = place
    return tuple(i for i in places if i is not None)


def _refuse_second_header(table: _Table, places: Sequence[int], last: ColumnSpec, line: int) -> None:
    """Raise UsageError where the row below the header may be one too: its answer does not come again.

    Besides, it has a name of SUBHEADERS, or, with a label, nothing in a column that is not read and full below.
    """
    first, *others = table.rows
    answers = {part for row in others for part in last.parts(row[places[-1]])}
    empty = [i for i, cell in enumerate(first) if not cell and i not in places]
    lacks = last.doubt is few_values and any(others and all(row[i] for row in others) for i in empty)
    if answers.isdisjoint(last.parts(first[places[-1]])) and (lacks or SUBHEADERS.intersection(map(plain, first))):
        shown = shortened(", ".join(map(repr, first)), LONGEST_LIST)
        what = f"{table.path}:{line}: the row below the header may be a second header or an example ({shown})"
        raise UsageError(what, "take a second header out; if it is an example: --header yes")


def may_be_pairs(specs: ColumnSpecs) -> bool:
    """Return whether the columns are of texts with answers, and a column of second texts may stand beside them."""
    return len(specs) == 2 and specs[0].name == TEXT.name


def _note(table: _Table, places: Sequence[int], specs: ColumnSpecs, diagnostics: Diagnostics) -> None:
    """Note what was decided, with the first row as it is understood, and long texts that are not read."""
    called = [repr(name) if table.header else str(i + 1) for i, name in enumerate(table.names)]
    shown = ", ".join(f"{spec.name} is column {called[i]}" for spec, i in zip(specs, places, strict=True))
    first = " | ".join(repr(table.rows[0][i][:30]) for i in places) if table.rows else "none"
    notes = [f"{'' if table.header else 'no header; '}{shown}; first example: {first}"]
    for i in range(len(called)) if may_be_pairs(specs) and table.rows else ():
        if i not in places and sum(len(cell.split()) for cell in table.column(i)) >= WORDS_OF_TEXT * len(table.rows):
            notes.append(f"column {called[i]} is not read; as second text of a pair: {SECOND.flag} {called[i]}")
    diagnostics.notes += [f"{table.path.name}: {note}" for note in notes]


# --- rows ------------------------------------------------------------------------------------------------------


def below_header(path: Path, rows: Iterator[Row], columns: Columns, diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows below the header; one that comes again, as where files were put together, is counted and noted."""
    header, repeated = list[str](), list[int]()
    for i, row in enumerate(rows):
        if path in diagnostics.cut:
            return
        short = columns.has_header and (i == 0 or max(map(len, row.fields)) < LONGEST_NAME)
        found = [plain(cell) for cell in row.fields] if short else []
        if i == 0 and short:
            header = found
        elif not short or sorted(found) != sorted(header):
            yield row
        elif found == header:
            repeated.append(row.line)
        else:
            order = f"a second header has the columns in another order ({', '.join(row.fields)})"
            diagnostics.error(path, row.line, "columns", f"{order}; read the files apart")
    if repeated:
        diagnostics.counts["repeated headers left out"] += len(repeated)
        where = ", ".join(f"{line:,}" for line in repeated[:5]) + ", …" * (len(repeated) > 5)
        diagnostics.notes.append(f"{path.name}: a header came again and was left out (line {where})")


def _to_the_last(rows: Iterator[Row], diagnostics: Diagnostics) -> Iterator[Row]:
    """Yield the rows up to the last one with a value; those of delimiters alone behind it are counted."""
    empty = list[Row]()
    for row in rows:
        empty.append(row)
        if isinstance(row.fields, dict) or any(row.fields):
            yield from empty
            empty.clear()
    diagnostics.counts["empty lines"] += len(empty)


def row_values(
    row: Row, columns: Columns, specs: ColumnSpecs, path: Path, diagnostics: Diagnostics
) -> tuple[str, ...] | None:
    """Return a row's values, the two texts of a pair as one; None after reporting why there are none."""
    if isinstance(row.fields, list) and len(row.fields) != columns.n_fields:
        are = "is" if columns.n_fields == 1 else "are"
        message = f"{counted(columns.n_fields, 'columns')} {are} expected, but there are {len(row.fields)}"
        diagnostics.error(path, row.line, "columns", message)
        return None
    values = list[str]()
    for key, spec in zip(columns.keys, specs, strict=True):
        value = row.fields[int(key)] if isinstance(row.fields, list) else row.fields.get(str(key))
        if value is None:
            missing = f"{key!r} is null" if key in row.fields else f"there is no {key!r}"
            diagnostics.error(path, row.line, "columns", missing)
            return None
        try:
            value = value if isinstance(value, str) else spec.cell(value)
        except ValueError as error:  # as in the rows below
            diagnostics.stop(path, row.line, "label" if spec.clean else "columns", f"{key!r} {error}")
            return None
        if issue := encoding_issue(value):
            diagnostics.error(path, row.line, *issue)
            return None
        values.append(visible(value))
    if len(specs) > 1 and specs[1].name == SECOND.name:
        if issue := pair_issue(values[0], values[1]):
            diagnostics.error(path, row.line, "pair", issue)
            return None
        values = [join_pair(*values[:2]), *values[2:]]
    return tuple(values)


def why_rejected(fields: Mapping[str, Any], read: Sequence[str | None]) -> str:
    """Return that an annotator rejected a row, where a field that is not read says so; else ""."""
    for name, marks in REJECTED.items():
        if name not in read and str(fields.get(name)).casefold() in marks:
            return f"{name!r} is {fields[name]!r}, so this annotation was rejected; remove it"
    return ""


# --- what a task and a run read --------------------------------------------------------------------------------


def with_second(columns: ColumnSpecs) -> ColumnSpecs:
    """Return the columns of texts with answers, and between them one of second texts."""
    return (FIRST, SECOND, *columns[1:])


def as_trained(specs: ColumnSpecs, known: Columns | None) -> ColumnSpecs:
    """Return columns that are required where training read them, unless a flag names another."""
    if known is None or len(known.headers) < len(specs):
        return specs
    places = [(key, known.n_fields) if isinstance(key, int) and not known.has_header else None for key in known.keys]
    found = zip(specs, known.headers, places, strict=False)
    return tuple(replace(spec, trained=header, place=place) for spec, header, place in found)


def text_specs(
    columns: ColumnSpecs | None, known: Columns | None, requested: tuple[str | None, str | None], pairs: bool
) -> ColumnSpecs:
    """Return how the texts to answer, or with `pairs` the two texts of each pair, are looked for in a table.

    `columns` are those of the task, `known` those that training read, and `requested` those of the first and of the
    second texts that were named.

    Raises:
        UsageError: a second column is named where a text is no pair, or is needed and not known.
    """
    first = (columns or (TEXT,))[0]
    text = replace(first, name="text", flag=TEXT.flag, usual=(*first.usual, *TEXT.usual))
    if not pairs and requested[1] is not None:
        raise UsageError("the model reads one text, and a column of second texts was named", "leave out --pair-column")
    specs = (text, SECOND) if pairs else (text,)
    found = tuple(replace(spec, requested=name) for spec, name in zip(specs, requested, strict=False))
    found = as_trained(found, known if known and known.headers[0] != "" else None)
    if pairs and not (found[1].requested or found[1].trained or found[1].place):
        raise UsageError("the model reads two texts", "name the column of the second: --pair-column")
    return found


@dataclass(frozen=True)
class DataSchema:
    """A task's input: texts with targets, texts alone, or running text.

    Args:
        task: its name, for messages.
        columns: the columns of a table, (text, target), or (text,) alone; None for running text.
        parallel: whether two files with matching lines may replace a table.
        check: reports targets that cannot be used, given all parts ("train", "valid", "test").
        read: reads a file that is no table of these columns; the columns say what flags name.
        count: counts what `data check` prints of a part, by name.
    """

    task: str
    columns: tuple[ColumnSpec, ...] | None = None
    parallel: bool = False
    check: Callable[[Mapping[str, Split], Diagnostics], None] = lambda parts, diagnostics: None
    read: Callable[[Path, ColumnSpecs, Diagnostics], Split] | None = None
    count: Callable[[Split], Mapping[str, int]] = lambda split: {}

    @property
    def target(self) -> str | None:
        """Name of the targets ("label", "target"); "" for texts alone, None for running text."""
        if self.columns is None:
            return None
        return self.columns[1].name if len(self.columns) > 1 else ""

    @property
    def has_names(self) -> bool:
        """Return whether texts come with labels or tags, of which few differ, and each gives its share of a split."""
        return self.columns is not None and self.columns[-1].doubt is few_values

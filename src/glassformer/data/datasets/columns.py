"""Two columns out of a table, or one of texts alone: named by flags, or guessed, and then always announced.

The rules, in order: a flag; a usual name in the header; what the values look like (the label is the column
with the fewest different values, the text the one with the longest; of pairs, the first two columns).
Files are read by `tables.py`.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.data.datasets.tables import Row, read_rows
from glassformer.data.diagnostics import Findings, Kind
from glassformer.data.splits import Split
from glassformer.errors import UsageError

SAMPLE_ROWS = 1000
"""Rows looked at before columns are chosen."""


@dataclass(frozen=True)
class Role:
    """What a column is for.

    Args:
        name: what messages call it.
        flag: the flag that names the column.
        usual: how such columns are usually called, the likeliest first.
        asked: the column's name, from the flag; None to guess.
    """

    name: str
    flag: str
    usual: tuple[str, ...]
    asked: str | None = None

    @property
    def is_label(self) -> bool:
        return self.name == "label"

    def preferring(self, column: str | None) -> Role:
        """The same, with a name to look for first (the one another part of the data has)."""
        return self if column is None else replace(self, usual=(column.strip().lower(), *self.usual))


Roles = tuple[Role, ...]
"""Of the text and of its answer, or of the text alone."""
_TEXTS = """text review sentence content comment message body tweet post document question utterance phrase
description abstract headline title"""
_LABELS = "label labels class category sentiment target intent topic emotion polarity rating stars score y"
_SOURCES = "src source source_text input original from"
_TARGETS = "tgt trg target target_text translation output to"
TEXT = Role("text", "--text-column", tuple(_TEXTS.split()))
LABEL = Role("label", "--label-column", tuple(_LABELS.split()))
SOURCE = Role("source", "--src-column", tuple(_SOURCES.split()))
TARGET = Role("target", "--tgt-column", tuple(_TARGETS.split()))

_LANGUAGE = re.compile(
    r"[a-z]{2,3}([-_][a-z]{2,4})?|english|german|french|spanish|italian|portuguese|dutch|russian|chinese|japanese"
)


@dataclass(frozen=True)
class Rows:
    """Texts with what belongs to each (nothing, if they stand alone), as read, the line each begins on, and what a
    header calls the columns."""

    text: list[str]
    answer: list[str]
    lines: Sequence[int]
    path: Path
    columns: tuple[str | None, ...] = (None, None)

    def split(self) -> Split:
        """The rows without their places."""
        return Split(self.text, self.answer if len(self.columns) > 1 else None, str(self.path))


@dataclass(frozen=True)
class Chosen:
    """The columns by position (JSON: by name), how many a row must have (JSON: 0), rows of header, names."""

    keys: tuple[int, ...] | tuple[str, ...]
    n_columns: int
    n_header: int
    names: tuple[str | None, ...]


def read_table(path: Path, roles: Roles, findings: Findings) -> Rows:
    """The columns of these roles in a CSV, TSV or JSON Lines file.

    Args:
        path: the file.
        roles: what the columns are for, such as (TEXT, LABEL), or (TEXT,).
        findings: takes problems, and a note on columns that were guessed. Rows with a problem are left out.

    Raises:
        UsageError: the file's name says no known format, or a column asked for is not there.
    """
    rows = read_rows(path, findings)
    sample = list(itertools.islice(rows, SAMPLE_ROWS))
    chosen = _choose(path, sample, roles, findings) if sample else None
    if chosen is None:
        deque(rows, maxlen=0)  # to the end, so that everything wrong is found
        return Rows([], [], [], path, (None,) * len(roles))
    lines, first, second = array("q"), [], []
    for row in itertools.chain(sample[chosen.n_header :], rows):
        if (values := _values(row, chosen, roles, path, findings)) is not None:
            lines.append(row.line)
            first.append(values[0])
            second += [value.strip() if roles[-1].is_label else value for value in values[1:]]
    if roles[-1].is_label:
        for line in (line for line, label in zip(lines, second, strict=True) if not label):
            findings.error(path, line, "label", "the label is empty")
    return Rows(first, second, lines, path, chosen.names)


def _choose(path: Path, sample: list[Row], roles: Roles, findings: Findings) -> Chosen | None:
    """Which columns to read; None after noting that there are not two."""
    first = sample[0].fields
    if isinstance(first, dict):
        names = list(dict.fromkeys(key for row in sample for key in _object(row)))
        body = [[str(_object(row).get(name, "")) for name in names] for row in sample]
        header = True
    else:
        names = first
        body = [row.fields for row in sample[1:] if isinstance(row.fields, list)]
        body = [fields for fields in body if len(fields) == len(names)]
        header = any(role.asked for role in roles) or _has_header(names, body, roles)
    if len(names) < len(roles):
        what = f"two columns are needed ({' and '.join(r.name for r in roles)}), but there is {len(names)}"
        findings.error(path, sample[0].line, "columns", what)
        return None
    chosen: list[int | None] = _by_name(path, names, roles) if header else [None] * len(roles)
    _by_looks(chosen, body if header else [names, *body], roles, len(names))
    places = tuple(i for i in chosen if i is not None)
    if not all(role.asked for role in roles):
        shown = [repr(names[i]) if header else f"number {i + 1}" for i in places]
        told = ", ".join(f"{role.name} is column {at}" for role, at in zip(roles, shown, strict=True))
        how = "" if header else "; there is no header line"
        choose = " and ".join(role.flag for role in roles) + (" choose" if len(roles) > 1 else " chooses")
        findings.notes.append(f"{path.name}: {told} (guessed{how}; {choose})")
    called = tuple(names[i] for i in places)
    if isinstance(first, dict):
        return Chosen(called, 0, 0, called)
    return Chosen(places, len(names), int(header), called if header else (None,) * len(roles))


def _has_header(names: Sequence[str], body: list[list[str]], roles: Roles) -> bool:
    """Whether the first line names columns: it has a usual name, or does not look like the lines below."""
    lowered = [name.strip().lower() for name in names]
    if any(name in role.usual for role in roles for name in lowered):
        return True
    if len(roles) == 1:  # texts have spaces, and what they are called has not
        longest = _longest(range(len(names)), body)
        return " " not in names[longest] and any(" " in row[longest] for row in body)
    if roles[1].is_label:
        label = min(range(len(names)), key=lambda i: _label_rank([row[i] for row in body]))
        return bool(body) and names[label] not in {row[label] for row in body}
    named = [all(_LANGUAGE.fullmatch(cell.strip().lower()) for cell in row[:2]) for row in [names, *body]]
    return bool(body) and named[0] and not any(named[1:])


def _by_name(path: Path, names: Sequence[str], roles: Roles) -> list[int | None]:
    """Where the header has the columns asked for, and usual names for the others."""
    lowered = [name.strip().lower() for name in names]
    chosen: list[int | None] = [None] * len(roles)
    for k, role in enumerate(roles):
        if role.asked is None:
            continue
        if role.asked in names:
            chosen[k] = names.index(role.asked)
        elif role.asked.lower() in lowered:
            chosen[k] = lowered.index(role.asked.lower())
        else:
            close = difflib.get_close_matches(role.asked, names, 1)
            hint = f"did you mean {role.flag} {close[0]!r}?" if close else f"its columns: {', '.join(names)}"
            raise UsageError(f"{path}: there is no column {role.asked!r}", hint)
    for k, role in enumerate(roles):
        if chosen[k] is None:
            found = (lowered.index(usual) for usual in role.usual if usual in lowered)
            chosen[k] = next((i for i in found if i not in chosen), None)
    return chosen


def _by_looks(chosen: list[int | None], body: list[list[str]], roles: Roles, n: int) -> None:
    """Fill in what names did not tell."""
    order = range(len(roles))
    for k in reversed(order) if roles[-1].is_label else order:  # a label is easier to tell than a text
        if chosen[k] is not None:
            continue
        free = [i for i in range(n) if i not in chosen]
        if roles[k].is_label:
            chosen[k] = min(free, key=lambda i: _label_rank([row[i] for row in body]))
        elif roles[-1].is_label or len(roles) == 1:
            chosen[k] = _longest(free, body)
        else:
            chosen[k] = free[0]


def _longest(columns: Sequence[int], body: list[list[str]]) -> int:
    """The column with the most characters."""
    return max(columns, key=lambda i: sum(len(row[i]) for row in body))


def _label_rank(values: list[str]) -> tuple[bool, int, int]:
    """Smaller for what looks more like labels: several values, but few, and short."""
    distinct = set(values)
    return len(distinct) < 2, len(distinct), sum(map(len, distinct))


def _object(row: Row) -> dict[str, Any]:
    """A JSON row's fields; {"translation": {"en": …, "de": …}}, as some corpora have it, is looked into."""
    fields = row.fields if isinstance(row.fields, dict) else {}
    inner = fields.get("translation")
    return inner if isinstance(inner, dict) else fields


def _values(row: Row, chosen: Chosen, roles: Roles, path: Path, findings: Findings) -> tuple[str, ...] | None:
    """The values of a row; None after noting why there are none."""
    if isinstance(row.fields, list):
        if len(row.fields) != chosen.n_columns:
            what = f"{chosen.n_columns} columns are expected, but there are {len(row.fields)}"
            findings.error(path, row.line, "columns", what)
            return None
        return tuple(row.fields[int(key)] for key in chosen.keys)
    values = []
    for key, role in zip(chosen.keys, roles, strict=True):
        value = _object(row).get(str(key))
        if role.is_label and isinstance(value, bool | int | float):
            value = json.dumps(value)
        if not isinstance(value, str):
            what = f"there is no {key!r}" if value is None else f"{key!r} is not a string"
            findings.error(path, row.line, "columns", what)
            return None
        if problem := unwritable(value):
            findings.error(path, row.line, *problem)
            return None
        values.append(value)
    return tuple(values)


def unwritable(text: str) -> tuple[Kind, str] | None:
    """What JSON can escape but no text file can hold."""
    if "\0" in text:
        return "nul", "the text holds NUL (\\u0000)"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        what = "the text holds half a surrogate pair (\\ud800 to \\udfff), which is not Unicode text"
        return "encoding", what
    return None

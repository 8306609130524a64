"""A table and its answers, as what is written: the rows, the kinds of the new columns, and values as text or JSON."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.diagnostics import encoding_issue
from glassformer.data.table_reader import InputTable
from glassformer.errors import DataError
from glassformer.utils.atomic_io import json_line

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class OutputTable:
    """What is written.

    Attributes:
        table: the table that was answered.
        answers: answers to its rows, in order: the same columns in each, texts, numbers, or JSON values.
        columns: the kind of each of these columns: "string", "integer", "number", "vector" or "nested".
        free_text: whether answers may hold any character.
    """

    table: InputTable
    answers: Iterable[Answer]
    columns: Mapping[str, str]
    free_text: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.table.names, *self.columns)

    def rows(self) -> Iterator[list[Any]]:
        """Yield the values of each row in the order of the names; what a JSON object lacks is None."""
        for fields, answer in zip(self.table.rows(), self.answers, strict=True):
            own = fields if isinstance(fields, list) else [fields.get(name) for name in self.table.names]
            yield [*own, *(answer.get(name) for name in self.columns)]

    def refuse_double_names(self, path: Path) -> None:
        """Raise DataError if a header that stands twice has no place in the format of a file."""
        names = self.table.names
        if double := next((name for name in names if names.count(name) > 1), None):
            message = f"{self.table.path}: several columns have one name ({double!r}), of which {path.name} holds one"
            raise DataError(message, "give each column a name of its own, or write .csv")


def column_kinds(answer: Answer) -> dict[str, str]:
    """Return the kinds of the columns that an answer fills."""
    kinds = {str: "string", int: "integer", float: "number"}

    def kind_of(value: Any) -> str:
        if isinstance(value, list) and value and all(isinstance(x, float) for x in value):
            return "vector"
        return kinds.get(type(value), "nested")

    return {name: kind_of(value) for name, value in answer.items()}


def cell_text(value: Any, name: str) -> str:
    """Return a value as a field of a CSV: a missing one is empty, and what has parts is JSON.

    Raises:
        DataError: it holds bytes, or characters that no file of text holds.
    """
    if isinstance(value, str):
        if issue := encoding_issue(value):
            raise DataError(f"in the column {name!r} {issue[1]}", "name the output .jsonl")
        return value
    value = json_value(value, name)
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value) if isinstance(value, float) else json_text(value)


def json_text(value: Any) -> str:
    """Return a value as JSON on one line; half a surrogate pair, which no file holds, is an escape."""
    text = json_line(value)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def json_value(value: Any, name: str) -> Any:
    """Return a value as JSON has it: times and decimal numbers as text.

    Raises:
        DataError: it holds bytes.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_value(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, name) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    kind = "bytes" if isinstance(value, bytes) else f"values of the type {type(value).__name__}"
    raise DataError(f"the column {name!r} holds {kind}, which text cannot", "name the output .parquet or .arrow")

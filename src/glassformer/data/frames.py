"""Tables in memory: a data frame, a list of dictionaries or a dictionary of lists.

No library of data frames is imported: a frame gives its rows as dictionaries. To train on a table it is written as JSON
Lines beside the run folder, so that the run can be resumed and evaluated like one that was trained on a file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.data.answered_table import json_text
from glassformer.data.datasets.columns import SAMPLE_ROWS, ColumnSpecs, choose_columns, row_values
from glassformer.data.datasets.tables import Row
from glassformer.data.diagnostics import Diagnostics
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import atomic_write_text

METHODS = {"to_dicts": (), "to_pylist": (), "to_list": (), "to_dict": ("records",)}
"""How polars, pyarrow, `datasets` and pandas give their rows as dictionaries: a method, and its arguments."""
_MISSING = ("NAType", "NaTType")
"""Types of the missing values of pandas."""


def with_stored_tables(settings: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return settings of a training in which tables in memory, `train`, `valid` and `test`, are files beside the run.

    Text and paths are taken for files. A dictionary of settings, `train={"minutes": 3}`, is left as it is.

    Raises:
        DataError: what came is no table, or is empty.
        UsageError: a table and a file were given for one part, or the file beside the run holds another table.
    """
    found = dict(settings)
    for part in ("train", "valid", "test"):
        table = found.get(part)
        if table is None or (part == "train" and isinstance(table, Mapping) and not _holds_columns(table)):
            continue
        if found.get(f"{part}_file") is not None:
            raise UsageError(f"{part} and {part}_file were given", "give one of them")
        del found[part]
        is_path = isinstance(table, str | os.PathLike)
        file = table if is_path else _stored(table, part, run.with_name(f"{run.name}.{part}.jsonl"))
        found[f"{part}_file"] = os.fspath(file)
    return found


def _stored(table: Any, part: str, path: Path) -> Path:
    content = "".join(f"{json_text(row)}\n" for row in rows_of(table, part))
    if path.exists() and path.read_text(encoding="utf-8") != content:
        raise UsageError(f"{path} holds another table", "name another folder (out), or remove this file")
    atomic_write_text(path, content)
    return path


def rows_of(table: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of JSON values; bytes and missing values are None.

    Raises:
        DataError: it is no table, two of its columns have one name, or there is no row.
    """
    columns = getattr(table, "column_names", None) or getattr(table, "columns", ())
    if double := [column for column, n in Counter(map(str, columns)).items() if n > 1]:
        raise DataError(f"{name}: several columns have one name ({double[0]!r})", "give each a name of its own")
    method = next((method for method in METHODS if hasattr(table, method)), None)
    if method is not None:
        rows = getattr(table, method)(*METHODS[method])
    elif isinstance(table, Mapping) and _holds_columns(table):
        if len(lengths := {len(column) for column in table.values()}) > 1:
            raise DataError(f"{name}: the columns have different lengths ({', '.join(map(str, sorted(lengths)))})")
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    else:
        rows = [*table] if isinstance(table, Iterable) else [table]
    if not rows:
        raise DataError(f"{name}: there is no row in this table", "give a table with rows")
    if (wrong := next((row for row in rows if not isinstance(row, Mapping)), None)) is not None:
        hint = "give a data frame, a list of dictionaries, or a dictionary of lists"
        raise DataError(f"{name}: expected rows that are dictionaries, not {type(wrong).__name__}", hint)
    return [json.loads(json.dumps(row, default=_json_value), parse_constant=lambda _: None) for row in rows]


def _holds_columns(table: Mapping[Any, Any]) -> bool:
    """Return whether each value is a column: a list, or an array."""
    values = [*table.values()]
    return bool(values) and all(hasattr(v, "__len__") and not isinstance(v, str | bytes | Mapping) for v in values)


def _json_value(value: Any) -> Any:
    """Return what JSON has no word for as what it has: arrays as lists, times as text, bytes and gaps as None."""
    if isinstance(value, bytes) or type(value).__name__ in _MISSING:
        return None
    return value.tolist() if hasattr(value, "tolist") else str(value)


def answered_frame(table: Any, specs: ColumnSpecs, answers_of: Callable[[list[str]], Iterable[dict[str, Any]]]) -> Any:
    """Return a table of the same kind with the columns that `answers_of` returns for each of its texts.

    `specs` are the column of the texts, or those of the two texts of each pair.

    Raises:
        DataError: a text is missing, or the table is none.
        UsageError: the column of the texts is missing, or one of the new names is taken.
    """
    path, diagnostics = Path("table"), Diagnostics()
    rows = [Row(number, fields) for number, fields in enumerate(rows_of(table, "table"), start=1)]
    specs = tuple(replace(spec, flag=spec.flag.removeprefix("--").replace("-", "_")) for spec in specs)
    column = choose_columns(path, rows[:SAMPLE_ROWS], specs, diagnostics)
    texts = [row_values(row, column, specs, path, diagnostics) for row in rows] if column else []
    diagnostics.raise_if_any()
    answers = [*answers_of([text[0] for text in texts if text is not None])]
    new = {name: [answer.get(name) for answer in answers] for name in answers[0]}
    if taken := [name for name in new if any(name in row.fields for row in rows)]:
        raise UsageError(f"the table has a column {taken[0]!r} already", 'rename the new ones: prefix="model_"')
    if hasattr(table, "append_column"):
        for name, values in new.items():
            table = table.append_column(name, [values])
        return table
    if hasattr(table, "assign"):
        return table.assign(**new)
    if hasattr(table, "hstack"):
        return table.hstack(type(table)(new))
    if isinstance(table, Mapping):
        return {**table, **new}
    return [{**row, **answer} for row, answer in zip(table, answers, strict=True)]

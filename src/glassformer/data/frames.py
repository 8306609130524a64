"""Tables in memory: a data frame, a list of dictionaries or a dictionary of lists.

No library of data frames is imported. pyarrow, where it is installed, reads what offers its columns as an Arrow stream;
else a frame gives dictionaries. To train on a table it is written as JSON Lines beside the run folder, so that the run
can be resumed and evaluated like one that was trained on a file.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.data.answered_table import json_text
from glassformer.data.datasets.columns import SAMPLE_ROWS, ColumnSpecs, choose_columns, row_values
from glassformer.data.datasets.tables import Row
from glassformer.data.diagnostics import Diagnostics
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import atomic_write_text

_INDEX = re.compile(r"__index_level_\d+__")
_MISSING = ("NAType", "NaTType")
"""Types of the missing values of pandas."""


def with_stored_tables(settings: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return settings of a training in which tables in memory, `train`, `valid` and `test`, are files beside the run.

    Text and paths are taken for files. A dictionary of settings, `train={"minutes": 3}`, is left as it is.

    Raises:
        DataError: what came is no table, or is empty.
        UsageError: a table and a file were given for one part.
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
        file = table if is_path else store_table(table, part, run.with_name(f"{run.name}.{part}.jsonl"))
        found[f"{part}_file"] = os.fspath(file)
    return found


def store_table(table: Any, part: str, path: Path) -> Path:
    """Write a table as JSON Lines, and return the file; raise UsageError where it is there with another table."""
    content = "".join(f"{json_text(row)}\n" for row in rows_of(table, part))
    if not content:
        raise DataError(f"{part}: there is no row in this table", "give a table with rows")
    if path.exists() and path.read_text(encoding="utf-8") != content:
        raise UsageError(f"{path} holds another table", "name another folder (out), or remove this file")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, content)
    return path


def rows_of(table: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as dictionaries of JSON values; bytes and missing values are None.

    Raises:
        DataError: it is no table, or two of its columns have one name.
    """
    for row in _raw_rows(table, name):
        if not isinstance(row, Mapping):
            raise _no_table(name, f"a list of {type(row).__name__}")
        yield {str(key): _plain(value) for key, value in row.items()}


def _raw_rows(table: Any, name: str) -> Iterable[Any]:
    columns = getattr(table, "column_names", None) or getattr(table, "columns", ())
    names = Counter(str(column) for column in columns if isinstance(column, str | int))
    if double := [column for column, n in names.items() if n > 1]:
        raise DataError(f"{name}: several columns have one name ({double[0]!r})", "give each a name of its own")
    if (rows := _arrow_rows(table)) is not None:
        return rows
    if hasattr(table, "to_dicts"):
        return table.to_dicts()
    if hasattr(table, "to_dict") and hasattr(table, "columns"):
        return table.to_dict("records")
    if isinstance(table, Mapping):
        if not _holds_columns(table):
            raise _no_table(name, "a dictionary whose values are not all lists")
        if len(lengths := {len(column) for column in table.values()}) > 1:
            raise DataError(f"{name}: the columns have different lengths ({', '.join(map(str, sorted(lengths)))})")
        return (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    if isinstance(table, Iterable) and not isinstance(table, str | bytes):
        return table
    raise _no_table(name, type(table).__name__)


def _arrow_rows(table: Any) -> Iterator[dict[str, Any]] | None:
    """Return the rows of what offers an Arrow stream; None for what does not, or without pyarrow."""
    if not hasattr(table, "__arrow_c_stream__"):
        return None
    try:
        import pyarrow as pa

        from glassformer.data.datasets.arrow_files import python_rows

        reader = pa.RecordBatchReader.from_stream(table)
    except (ImportError, ValueError, TypeError):  # a column of mixed types has no Arrow type
        return None
    kept = [name for name in reader.schema.names if not _INDEX.fullmatch(name)]
    return itertools.chain.from_iterable(python_rows(batch.select(kept), "table") for batch in reader)


def _holds_columns(table: Mapping[Any, Any]) -> bool:
    """Return whether each value is a column: a list, or an array."""
    values = [*table.values()]
    return bool(values) and all(hasattr(v, "__len__") and not isinstance(v, str | bytes | Mapping) for v in values)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes) or type(value).__name__ in _MISSING:
        return None
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of numpy
        return _plain(value.item())
    return str(value)


def _no_table(name: str, what: str) -> DataError:
    hint = "give a data frame, a list of dictionaries, or a dictionary of lists"
    return DataError(f"{name}: expected a table, not {what}", hint)


def answered_frame(table: Any, specs: ColumnSpecs, answers_of: Callable[[list[str]], Iterable[dict[str, Any]]]) -> Any:
    """Return a table of the same kind with the columns that `answers_of` returns for each of its texts.

    `specs` are the column of the texts, or those of the two texts of each pair.

    Raises:
        DataError: a text is missing, or the table is none.
        UsageError: the column of the texts is missing, or one of the new names is taken.
    """
    path, diagnostics = Path("table"), Diagnostics()
    rows = [Row(number, fields) for number, fields in enumerate(rows_of(table, "table"), start=1)]
    if not rows:
        raise DataError("there is no row in this table", "give a table with rows")
    specs = tuple(replace(spec, flag=spec.flag.removeprefix("--").replace("-", "_")) for spec in specs)
    column = choose_columns(path, rows[:SAMPLE_ROWS], specs, diagnostics)
    texts = [row_values(row, column, specs, path, diagnostics) for row in rows] if column else []
    diagnostics.raise_if_any()
    answers = [*answers_of([text[0] for text in texts if text is not None])]
    new = {name: [answer.get(name) for answer in answers] for name in answers[0]}
    names = {name for row in rows for name in row.fields}
    if taken := [name for name in new if name in names]:
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

"""Parquet and Arrow files as batches of rows; pyarrow reads them.

What a file unpacks to is limited before it is made into Python values, and every batch is checked before its values are
read: the offsets in an Arrow file may point anywhere. The classes of a `ClassLabel` of Hugging Face are stored as
numbers; training reads their names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from glassformer.data.diagnostics import MAX_UNPACKED_BYTES, Diagnostics
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import sha256_file

BATCH_ROWS = 256
"""Rows of a batch; the rows of an Arrow file are read as many at a time as were written together."""
MOST_TIMES = 20
"""A file may unpack to so many times its size; a smaller one to MAX_UNPACKED_BYTES."""
ROW_BYTES = 64
"""Bytes that a row of Python values takes at least."""
READ = ("string", "large_string", "string_view", "int", "uint", "float", "double", "halffloat", "bool", "decimal")
"""How the names of the types begin that are read, also in lists."""


def pyarrow_for(path: Path) -> Any:
    """Return pyarrow with its readers; raise UsageError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f"{path}: Parquet and Arrow files need the package pyarrow", 'install it: pip install "glassformer[tables]"'
        ) from error
    return pyarrow


def read_batches(path: Path, diagnostics: Diagnostics) -> Iterator[Any]:
    """Yield checked record batches of at most BATCH_ROWS rows.

    Errors go to `diagnostics`, with the row; there is nothing behind the first.

    Raises:
        DataError: the file unpacks to too much.
    """
    pa, n = pyarrow_for(path), 0
    diagnostics.hashes[path.as_posix()] = sha256_file(path)
    most = left = max(MAX_UNPACKED_BYTES, MOST_TIMES * path.stat().st_size)
    try:
        with pa.OSFile(str(path), "rb") as file:
            for batch in _batches(pa, file):
                if (left := left - ROW_BYTES * batch.num_rows) > 0:
                    batch.validate(full=True)
                    left -= sum(_unpacked_bytes(pa, column) for column in batch.columns)
                if left <= 0:
                    raise DataError(f"{path}: unpacks to more than {most:,} bytes", "write it in several files")
                yield from (batch.slice(start, BATCH_ROWS) for start in range(0, batch.num_rows, BATCH_ROWS))
                n += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0][:200]
        what = f"this is no Parquet or Arrow file, or a damaged one ({reason})"
        diagnostics.stop(path, n, "format", what)
    if not n and path not in diagnostics.cut:
        diagnostics.error(path, 0, "empty file", "the file is empty")


def _batches(pa: Any, file: Any) -> Iterator[Any]:
    magic = file.read(6)
    file.seek(0)
    if magic[:4] == b"PAR1":
        parquet = pa.parquet.ParquetFile(file)
        yield from parquet.iter_batches(BATCH_ROWS, use_threads=False)
    elif magic == b"ARROW1":
        reader = pa.ipc.open_file(file)
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from pa.ipc.open_stream(file)


def _unpacked_bytes(pa: Any, column: Any) -> int:
    """Return the bytes of a column's values, each counted where a dictionary holds it once for many rows."""
    if not pa.types.is_dictionary(column.type):
        return column.nbytes
    lengths = pa.compute.binary_length(column.dictionary.cast(pa.large_string()))
    return pa.compute.sum(lengths.take(column.indices)).as_py() or 0


def read_fields(path: Path, diagnostics: Diagnostics) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries of texts, numbers, truth values, lists of them, and times, which are written as text.

    A column of another type is named in a note, and its values are the type. Numbers of a `ClassLabel` are replaced by
    the names of its classes.
    """
    pa, names, unread, classes = pyarrow_for(path), list[str](), dict[str, Any](), dict[str, Any]()
    for batch in read_batches(path, diagnostics):
        if not names:
            if len({*batch.schema.names}) < len(batch.schema):
                raise DataError(f"{path}: several columns have one name", "give each column a name of its own")
            unread = {field.name: field.type for field in batch.schema if not _is_read(pa, field.type)}
            names = [name for name in batch.schema.names if name not in unread]
            classes = {name: of for name, of in _classes_of(batch.schema.metadata or {}).items() if name in names}
            notes = [f"{name} is of the type {kind}, which is not read" for name, kind in unread.items()]
            notes += [f"{name} has the classes {', '.join(of.values())}" for name, of in classes.items()]
            diagnostics.notes.extend(f"{path.name}: {note}" for note in notes)
            if not names:
                raise DataError(f"{path}: no column holds text ({notes[0]})", "write texts into one")
        columns = (batch.column(name) for name in names)
        columns = [column.cast(pa.string()) if pa.types.is_temporal(column.type) else column for column in columns]
        for row in pa.RecordBatch.from_arrays(columns, names).to_pylist():
            for name, of in classes.items():
                row[name] = [*map(of.get, row[name])] if isinstance(row[name], list) else of.get(row[name])
            yield row | unread


def _is_read(pa: Any, kind: Any) -> bool:
    inside = kind.value_type if str(kind).startswith(("dictionary<", "list<", "large_list<")) else kind
    return str(inside).startswith(READ) or pa.types.is_temporal(kind)


def _classes_of(metadata: Mapping[bytes, bytes]) -> dict[str, dict[int, str]]:
    """Return the names by number of the classes of each column that is a `ClassLabel`, or a list of them."""
    found: dict[str, dict[int, str]] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # else the numbers are read
        for name, of in json.loads(metadata[b"huggingface"])["info"]["features"].items():
            inner = of[0] if isinstance(of, list) else of.get("feature", of)
            if inner.get("_type") == "ClassLabel":
                found[name] = dict(enumerate(map(str, inner["names"])))
    return found

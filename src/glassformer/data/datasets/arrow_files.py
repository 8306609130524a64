"""Parquet and Arrow files, and Hugging Face data sets saved to disk, as batches of rows; pyarrow reads them.

A saved data set (`Dataset.save_to_disk`) is a folder of Arrow files, which `state.json` names. The classes of a
`ClassLabel` are stored as numbers; training reads their names. What a file unpacks to is limited, and every batch is
checked before its values are read: the offsets in an Arrow file may point anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glassformer.data.diagnostics import Diagnostics
from glassformer.data.sources import MAX_UNPACKED_BYTES, SAVED_DATASET, is_pipe, unreadable
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import sha256_file
from glassformer.utils.safe_read import LIMITS, is_of_type, parse_json, read_json_object

BATCH_ROWS = 256
"""Rows of a batch; the rows of an Arrow file are read as many at a time as were written together."""
MOST_TIMES = 20
"""A file may unpack to so many times its size; a smaller one to MAX_UNPACKED_BYTES."""


def pyarrow_for(path: Path) -> Any:
    """Return pyarrow with its readers; raise UsageError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        hint = 'install it: pip install "glassformer[tables]"'
        raise UsageError(f"{path}: Parquet and Arrow files need the package pyarrow", hint) from error
    return pyarrow


def schema_of(path: Path) -> Any:
    """Return the schema of a file or a saved data set.

    Raises:
        DataError: it cannot be read.
    """
    diagnostics = Diagnostics()
    for schema, _ in _opened(path, diagnostics):
        return schema
    diagnostics.raise_if_any()
    raise DataError(f"{path}: there is no file in this data set", "save it again")


def read_batches(path: Path, diagnostics: Diagnostics, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield checked record batches of at most BATCH_ROWS rows; with `columns` these alone.

    Errors go to `diagnostics`, with the row; there is nothing behind the first.
    """
    pa, n = pyarrow_for(path), 0
    damage = (pa.ArrowException, OSError, ValueError, KeyError)
    for schema, batches in _opened(path, diagnostics):
        if double := [name for name, count in Counter(schema.names).items() if count > 1]:
            diagnostics.error(path, 0, "columns", f"several columns have one name ({double[0]!r})")
            return
        kept = [name for name in schema.names if columns is None or name in columns]
        while True:
            batch = None
            try:
                if (batch := next(batches, None)) is None:
                    break
                batch.validate(full=True)
            except damage as error:
                what = f"the file is damaged here ({str(error).splitlines()[0][:200]})"
                place = 0 if batch is None else _first_bad(batch, damage)
                diagnostics.error(path, n + 1 + place, "format", what)
                return
            n += batch.num_rows
            yield batch.select(kept)
    if not n and not diagnostics.n_issues:
        diagnostics.error(path, 0, "empty file", "the file is empty")


def read_fields(path: Path, diagnostics: Diagnostics) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries of what a task can read: texts, numbers, truth values, and pairs of translations.

    Numbers of a `ClassLabel` are replaced by the names of its classes.
    """
    names: list[str] | None = None
    classes: dict[str, list[str]] = {}
    for batch in read_batches(path, diagnostics):
        if names is None:
            names = [field.name for field in batch.schema if _is_read(field)]
            classes = {name: found for name, found in _classes_of(path, batch.schema).items() if name in names}
            notes = (f"{path.name}: {name} has the classes {', '.join(found)}" for name, found in classes.items())
            diagnostics.notes.extend(notes)
            if not names:
                diagnostics.error(path, 0, "columns", "no column holds text")
                return
        for row in batch.select(names).to_pylist():
            for name, found in classes.items():
                place = row[name]
                row[name] = found[place] if isinstance(place, int) and 0 <= place < len(found) else None
            yield row


def python_rows(batch: Any, where: Path | str) -> list[dict[str, Any]]:
    """Return the rows of a batch as Python values; times are text, for those of Python have no nanoseconds.

    Durations are numbers of their unit, as text.

    Raises:
        DataError: a time within a list has no form as text.
    """
    pa = pyarrow_for(Path(where))
    try:
        as_text = pa.types.is_temporal
        columns = [column.cast(pa.string()) if as_text(column.type) else column for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0][:100]
        raise DataError(f"{where}: a time cannot be written as text ({reason})", "name the output .parquet") from error


def _opened(path: Path, diagnostics: Diagnostics) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Yield the schema and the batches of each file; a file that is none is an error in `diagnostics`."""
    pa = pyarrow_for(path)
    for file in _files_of(path, diagnostics):
        what = "this is a pipe, and columns are read from a file" if is_pipe(file) else unreadable(file)
        if what:
            diagnostics.error(file, 0, "missing", what)
            return
        diagnostics.read(file, sha256_file(file))
        try:
            opened = _Opened(pa, file)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0][:200]
            diagnostics.error(file, 0, "format", f"this is no Parquet or Arrow file, or a damaged one ({reason})")
            return
        with opened:
            yield opened.schema, opened.batches()


class _Opened:
    """An open file: its schema and its batches, which are counted against what it may unpack to."""

    def __init__(self, pa: Any, path: Path) -> None:
        self._pa, self._path = pa, path
        self._source = pa.OSFile(str(path), "rb")
        try:
            magic = self._source.read(6)
            self._source.seek(0)
            self._parquet = pa.parquet.ParquetFile(self._source) if magic[:4] == b"PAR1" else None
            self._is_file = magic == b"ARROW1"
            if self._parquet is not None:
                self.schema = self._parquet.schema_arrow
            else:
                open_ipc = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
                self._reader = open_ipc(self._source)
                self.schema = self._reader.schema
        except BaseException:
            self._source.close()
            raise

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def batches(self) -> Iterator[Any]:
        size, most = 0, max(MAX_UNPACKED_BYTES, MOST_TIMES * self._path.stat().st_size)
        for large in self._large_batches():
            for start in range(0, large.num_rows, BATCH_ROWS):
                batch = large.slice(start, BATCH_ROWS)
                size += batch.nbytes
                if size > most:
                    message = f"{self._path}: unpacks to more than {most:,} bytes"
                    raise DataError(message, "write it without compression, or in several files")
                yield batch

    def _large_batches(self) -> Iterator[Any]:
        if self._parquet is not None:
            yield from self._parquet.iter_batches(BATCH_ROWS, use_threads=False)
        elif self._is_file:
            yield from map(self._reader.get_batch, range(self._reader.num_record_batches))
        else:
            yield from self._reader


def _files_of(path: Path, diagnostics: Diagnostics) -> list[Path]:
    """Return the files that hold the rows: those of a saved data set, or the file itself."""
    if not path.is_dir():
        return [path]
    state = read_json_object(path / SAVED_DATASET, LIMITS["record"], DataError)
    diagnostics.read(path / SAVED_DATASET, sha256_file(path / SAVED_DATASET))
    listed = state.get("_data_files")
    names = [each.get("filename") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise DataError(f"{path / SAVED_DATASET} names no files of this folder", "save the data set again")
    if state.get("_indices_data_files"):
        message = f"{path}: the rows of this data set are chosen by an index"
        raise DataError(message, "call flatten_indices() before save_to_disk()")
    return [path / str(name) for name in names]


def _first_bad(batch: Any, damage: tuple[type[Exception], ...]) -> int:
    """Return the place of the first damaged row of a batch; 0 if it is not known."""
    for i in range(batch.num_rows):
        try:
            batch.slice(i, 1).validate(full=True)
        except damage:
            return i
    return 0


def _is_read(field: Any) -> bool:
    import pyarrow.types as t

    kind = field.type.value_type if t.is_dictionary(field.type) else field.type
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind)
    pair = field.name == "translation" and t.is_struct(kind)
    if t.is_list(kind) or t.is_large_list(kind):  # of labels or of words
        return t.is_string(kind.value_type) or t.is_large_string(kind.value_type) or t.is_integer(kind.value_type)
    return number or pair or t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind) or t.is_null(kind)


def _classes_of(path: Path, schema: Any) -> dict[str, list[str]]:
    """Return the names of the classes of each column that is a `ClassLabel`."""
    described: Any = (schema.metadata or {}).get(b"huggingface")
    try:
        info = parse_json(described, path, DataError)["info"] if described else None
        if info is None and path.is_dir() and (path / "dataset_info.json").is_file():
            info = read_json_object(path / "dataset_info.json", LIMITS["record"], DataError)
        features = info["features"] if info else {}
        found = {name: of["names"] for name, of in features.items() if of.get("_type") == "ClassLabel"}
    except (DataError, KeyError, TypeError, AttributeError):
        return {}  # a description that this version does not know; the numbers are read
    return {name: names for name, names in found.items() if is_of_type(names, list[str])}

"""A table with the columns of its answers behind its own, as the bytes of a file.

What is written is read back by `datasets/tables.py` as it was. Fields of a CSV with a delimiter, a quote or a line
break stand in quotes. A TSV has none while no field needs them, and otherwise around every field. A CSV keeps the
delimiter of the CSV that it comes from, and names it in a first line where the header would not show it. Line breaks
are line feeds.
"""

from __future__ import annotations

import codecs
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from glassformer.data.output_table import OutputTable, cell_text, json_text, json_value
from glassformer.data.sources import suffix_of
from glassformer.data.table_reader import InputTable
from glassformer.errors import DataError, UsageError

FORMATS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json"} | {
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"
}  # fmt: skip
"""Formats by the suffix of a file's name; those of text may have .gz behind it."""
LINES_TOGETHER = 1000
GZIP = 31
"""What zlib calls the format gzip, with the largest window."""


def format_for(path: Path) -> str:
    """Return the format in which a table is written.

    Raises:
        UsageError: the file's name does not show one that is written.
    """
    found = FORMATS.get(suffix_of(path))
    if found is None or (found in ("parquet", "arrow") and path.suffix.lower() == ".gz"):
        raise UsageError(
            f"{path}: the name of a table ends in .csv, .tsv, .jsonl (or .gz behind it), .parquet or .arrow",
            "name the file after the format that it should have",
        )
    if found in ("parquet", "arrow"):
        from glassformer.data.datasets.arrow_files import pyarrow_for

        pyarrow_for(path)
    return found


def refuse_unwritable(table: InputTable, path: Path) -> None:
    """Raise DataError if a format has no place for the names or a value of a table, before anything is computed for it.

    Only where that may be is the table read once more: CSV and TSV hold nothing but text.
    """
    kind = format_for(path)
    if kind not in ("csv", "tsv"):
        OutputTable(table, (), {}).refuse_double_names(path)
    if table.layout is not None or (table.is_columnar and kind in ("parquet", "arrow")):
        return
    place = json_value if kind == "json" else cell_text
    for number, fields in enumerate(table.rows(), start=1):
        for name, value in zip(table.names, fields, strict=False) if isinstance(fields, list) else fields.items():
            try:
                place(value, name)
            except DataError as error:
                raise DataError(f"{table.path}, row {number:,}: {error.message}", error.hint) from None


def table_bytes(output: OutputTable, path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, at bounded memory; its name says its format.

    Raises:
        DataError: a value has no place in the format, or the table that was answered has changed.
    """
    match format_for(path):
        case "csv":
            lines = _csv_lines(output)
        case "tsv":
            lines = _tsv_lines(output)
        case "json":
            output.refuse_double_names(path)
            lines = _json_lines(output)
        case kind:
            from glassformer.data.arrow_writer import columnar_bytes

            output.refuse_double_names(path)
            yield from columnar_bytes(output, kind)
            return
    mark = codecs.BOM_UTF8 if output.table.has_mark and suffix_of(path) == ".csv" else b""
    chunks = itertools.chain([mark] if mark else [], _joined(lines))
    yield from _gzipped(chunks) if path.suffix.lower() == ".gz" else chunks


def _joined(lines: Iterator[str]) -> Iterator[bytes]:
    while chunk := "".join(f"{line}\n" for line in itertools.islice(lines, LINES_TOGETHER)):
        yield chunk.encode("utf-8")


def _gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks compressed by gzip; the header has no time, so that equal content has equal bytes."""
    packer = zlib.compressobj(6, zlib.DEFLATED, GZIP)
    yield from filter(None, map(packer.compress, chunks))
    yield packer.flush()


def _csv_lines(output: OutputTable) -> Iterator[str]:
    layout = output.table.layout
    delimiter = layout.delimiter if layout and layout.quotes and layout.delimiter != "\t" else ","
    special = {delimiter, '"', "\r", "\n"}

    def is_special(value: str) -> bool:
        return not special.isdisjoint(value) or value.startswith((" ", "\ufeff")) or value[:4].lower() == "sep="

    def line_of(values: Sequence[str]) -> str:
        if len(values) == 1 and not values[0]:
            return '""'
        return delimiter.join(_quoted(value) if is_special(value) else value for value in values)

    lines = map(line_of, _cells(output))
    first = next(lines, "")
    line = first.split("\n")[0]
    shown = "," if "," in line else ";" if ";" in line else "\t" if "\t" in line else ","
    if delimiter != shown:
        yield f"sep={delimiter}"
    yield first
    yield from lines


def _tsv_lines(output: OutputTable) -> Iterator[str]:
    names_plain = not any(re.search(r'[\t\r\n"]', name) for name in output.columns)
    if output.table.is_plain and names_plain and not output.free_text:
        yield from map("\t".join, _cells(output))
    else:
        yield from ("\t".join(map(_quoted, row)) for row in _cells(output))


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _cells(output: OutputTable) -> Iterator[list[str]]:
    """Yield the header, unless the table has none, and the rows as text."""
    if output.table.has_header:
        yield list(output.names)
    for values in output.rows():
        yield [cell_text(value, name) for name, value in zip(output.names, values, strict=True)]


def _json_lines(output: OutputTable) -> Iterator[str]:
    names = output.table.names
    for fields, answer in zip(output.table.rows(), output.answers, strict=True):
        row = fields if isinstance(fields, dict) else dict(zip(names, fields, strict=True))
        yield json_text({name: json_value(value, name) for name, value in row.items()} | {**answer})

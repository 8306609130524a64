"""`glassformer predict RUN --file in.csv --out out.csv`: a table with the columns of the answers behind its own.

The table is read once before the first answer, so that nothing wrong in it is found after hours. Rows are written to
`out.csv.partial` as they are answered, and the file is renamed when it is whole. What an interrupted command has
answered stays there, and `--skip-rows` answers the rest.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from glassformer.data.answered_table import InputTable, TableWriter, scan_table
from glassformer.data.datasets.columns import ColumnSpecs
from glassformer.data.diagnostics import TableForm
from glassformer.errors import DataError, ResourceError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.run_data import known_columns
from glassformer.text.answers import PREDICTED_TOGETHER, answer_columns
from glassformer.training.signals import stop_requests
from glassformer.utils import console
from glassformer.utils.formatting import counted

if TYPE_CHECKING:
    from glassformer.interop.exported import ExportedModel
    from glassformer.run import Run

logger = logging.getLogger(__name__)


class Answering(Protocol):
    """What answers: a `Run`, or an `ExportedModel`."""

    def predict_stream(self, lines: Iterable[str], *, first: int = 0, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield the answers to texts, of which the first has this row number."""
        ...


@dataclass(frozen=True)
class Answerer:
    """A model, and what is to be known of it to answer a table.

    Attributes:
        model: what answers.
        options: options of `predict_stream`: of decoding, and of what is done with probabilities.
        engine: what computes, on which device, in which precision.
        columns_of: headers of the first and of the second texts, where they were named → the columns to read.
        labels: the classes, if answers are classes.
    """

    model: Answering
    options: dict[str, Any]
    engine: Mapping[str, str]
    columns_of: Callable[[tuple[str | None, str | None]], ColumnSpecs]
    labels: list[str] | None

    @staticmethod
    def of_run(trained: Run, options: dict[str, Any]) -> Answerer:
        """Return a run, or several joined ones, as what answers."""
        engine = {"engine": "torch", "device": trained.device.type, "precision": trained.precision}
        columns_of = partial(trained.task.text_columns, known_columns(RunFolder(trained.path).read_data()))
        return Answerer(trained, options, engine, columns_of, trained.task.label_names)

    @staticmethod
    def of_export(model: ExportedModel, options: dict[str, Any]) -> Answerer:
        """Return an exported model as what answers, without importing torch."""
        facts = model.facts
        engine = {"engine": facts.target, "device": model.device, "precision": facts.precision}
        return Answerer(model, options, engine, model.text_columns, facts.labels or None)


def table_of(arguments: Any, answerer: Answerer) -> InputTable:
    """Read the table that the flags name, and log what was found; errors as of `scan_table`."""
    specs = answerer.columns_of((arguments.text_column, arguments.pair_column))
    form = TableForm(arguments.header, arguments.delimiter, arguments.quotes, arguments.encoding or "utf-8")
    table = scan_table(Path(arguments.file), specs, form)
    for note in table.notes:
        logger.info(note)
    return table


def predict_table(arguments: Any, answerer: Answerer) -> int:
    """Answer each row of a table, write it with the answers, and return the exit code.

    Raises:
        DataError: something is wrong in the table; nothing is written.
        UsageError: a column has the name of an answer, or an earlier command left rows.
        Interrupted: a signal came; the message says how to go on.
    """
    out, first = Path(arguments.out), arguments.skip_rows or 0
    partial = out.with_name(f"{out.name}.partial")
    suffix = "".join(out.suffixes[-2:] if out.suffix == ".gz" else [out.suffix])
    if first < 0:
        raise UsageError(f"--skip-rows is a number of rows, not {first}", "leave it out to answer all")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", "make it, or name another one")
    if arguments.probabilities and not answerer.labels:
        raise UsageError("--probabilities is for classifiers", "leave it out")
    if partial.exists():
        hint = "keep it under another name and answer the rest with --skip-rows N, of its N whole rows; or remove it"
        raise UsageError(f"{partial} holds rows that an earlier command answered, or another is answering", hint)
    n_done, columns = first, ()

    def where_stopped() -> tuple[str, str]:
        if n_done == first:
            return "; nothing was answered yet", "give the same command again"
        kept = f"rows {first + 1:,} to {n_done:,} are answered, and kept in {partial}"
        return f"; {kept}", f"rename it, and answer the rest: --skip-rows {n_done} --out ANOTHER{suffix}"

    with stop_requests(where_stopped):
        table = table_of(arguments, answerer)
        if first >= table.n_rows:
            raise UsageError(f"--skip-rows {first}: {table.path} has {counted(table.n_rows, 'rows')}", "skip fewer")
        try:
            with TableWriter(partial, out, table) as writer:
                for rows in _answered(table, arguments, answerer, first):
                    writer.append(rows)
                    n_done, columns = n_done + len(rows), writer.names[len(table.names) :]
            if n_done != table.n_rows:
                raise DataError(f"{table.path} changed while it was read", "give the command again when it is whole")
            os.replace(partial, out)
        except OSError as error:
            raise ResourceError(
                f"{partial} cannot be written: {error.strerror or error}", where_stopped()[1]
            ) from error
        finally:
            if n_done == first:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
    logger.info(f"written: {out}, {counted(n_done - first, 'rows')} with {', '.join(columns)}")
    if arguments.json:
        facts = {"out": str(out), "rows": n_done - first, "columns": list(columns)}
        console.write_json(facts | dict(answerer.engine))
    return 0


def _answered(table: InputTable, arguments: Any, answerer: Answerer, first: int) -> Iterator[list[dict[str, Any]]]:
    """Yield rows of a table with their answers, some at a time."""
    texts, rows = itertools.tee(itertools.islice(table.rows(), first, None))
    answers = answerer.model.predict_stream((text for text, _ in texts), first=first, **answerer.options)
    shown = console.announced(answers, table.n_rows - first, "answered", unit="rows")
    while some := list(itertools.islice(shown, PREDICTED_TOGETHER)):
        found = [answer_columns(row, arguments.probabilities, arguments.prefix or "") for row in some]
        if taken := [name for name in found[0] if name in table.names]:
            message = f"{table.path} has a column {taken[0]!r} already"
            raise UsageError(message, "rename the new ones: --prefix model_")
        yield [row | answer for answer, (_, row) in zip(found, rows, strict=False)]  # rows last: none is lost

"""`glassformer predict RUN --file in.csv --out out.csv`: a table with the columns of the answers behind its own.

The table is read once before the first answer, so that nothing wrong in it is found after hours. Answers are kept in a
folder beside the output until all are there; the same command continues an interrupted one. Then the output is written
and renamed, whole or not at all.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from glassformer.config import Config, DecodeConfig
from glassformer.config.recipes import override
from glassformer.data.datasets.columns import SOURCE, ColumnSpec, ColumnSpecs
from glassformer.data.datasets.pair_columns import text_specs
from glassformer.data.output_table import OutputTable, column_kinds
from glassformer.data.sources import pipes_kept
from glassformer.data.table_reader import InputTable, scan_table
from glassformer.data.table_writer import format_for, refuse_unwritable, table_bytes
from glassformer.errors import DataError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.partial_answers import PartialAnswers, partial_answers
from glassformer.runs.run_data import known_columns
from glassformer.runs.sealed_folder import MANIFEST
from glassformer.text.answers import PREDICTED_TOGETHER, answer_columns
from glassformer.text.confidence import RULES
from glassformer.training.signals import stop_requests
from glassformer.utils import console
from glassformer.utils.atomic_io import atomic_write_chunks
from glassformer.utils.formatting import counted
from glassformer.utils.safe_read import sha256_regular

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
class TableRequest:
    """What the flags ask for.

    Attributes:
        file: the table. out: where it goes with its answers; None where the least sure answers are printed.
        text_column: the column of the texts; None to look for it.
        pair_column: the column of the second texts of pairs; None for that of training.
        probabilities: whether the probability of every class is a column.
        prefix: what stands before the names of the columns of answers.
        json: whether the result is printed as JSON.
    """

    file: Path
    out: Path | None
    text_column: str | None
    pair_column: str | None
    probabilities: bool
    prefix: str
    json: bool

    @staticmethod
    def of_flags(arguments: Any, texts: list[str]) -> TableRequest | None:
        """Return what the flags of `predict` ask for; None where they name no table.

        Raises:
            UsageError: flags contradict each other, or the output exists, or its format is not known.
        """
        if arguments.file is None:
            given = ("out", "text_column", "pair_column", "probabilities", "prefix")
            if wrong := [name for name in given if getattr(arguments, name)]:
                flag = "--" + wrong[0].replace("_", "-")
                raise UsageError(f"{flag} goes with --file", "name the table: --file in.csv --out out.csv")
            return None
        if texts:
            raise UsageError("texts and --file were given", "give one of them")
        if arguments.most_uncertain is not None:
            return TableRequest._to_rank(arguments)
        if arguments.out is None:
            raise UsageError("--file needs --out", "name the table to write, as in: --out out.csv")
        file, out = Path(arguments.file), Path(arguments.out)
        format_for(out)
        if out.exists() or out.is_symlink():
            raise UsageError(f"{out} exists", "name a new file, or remove this one")
        columns = arguments.text_column, arguments.pair_column
        return TableRequest(file, out, *columns, arguments.probabilities, arguments.prefix or "", arguments.json)

    @staticmethod
    def _to_rank(arguments: Any) -> TableRequest:
        """Return the request for the texts of a table, of which the least sure answers are printed."""
        for name in ("out", "probabilities", "prefix"):
            if getattr(arguments, name):
                message = f"--most-uncertain prints its answers, and --{name} is of a table that is written"
                raise UsageError(message, "leave out one of them; --json prints the texts, too")
        return TableRequest(Path(arguments.file), None, arguments.text_column, arguments.pair_column, False, "", False)

    def texts(self, answerer: Answerer) -> Iterator[str]:
        """Yield the texts of the table, each pair as one, after reading it once; raises as `scan_table`."""
        with pipes_kept():  # it is read twice
            table = scan_table(self.file, *answerer.specs(self))
            for note in table.notes:
                logger.info(note)
            yield from table.texts()

    def answered(self, answerer: Answerer) -> int:
        """Call `predict_table`."""
        return predict_table(self, answerer)

    def answerer_of_run(self, trained: Run, options: dict[str, Any]) -> Answerer:
        """Return a run, or several joined ones, as what answers."""
        folders = [RunFolder(path) for path in (trained.path, *trained.joined)]
        known = known_columns(folders[0].read_data())
        return Answerer(
            trained,
            options,
            _decode_of(trained.config, options),
            [folder.require_model_folder() / MANIFEST for folder in folders],
            {"engine": "torch", "device": trained.device.type, "precision": trained.precision},
            trained.task.schema.columns,
            trained.task.label_names,
            known.columns.headers if known else (),
            known.places if known else (),
            pairs=bool(trained.task.tokenizer.separator),
        )

    def answerer_of_export(self, model: ExportedModel, options: dict[str, Any]) -> Answerer:
        """Return an exported model as what answers, without importing torch."""
        facts, decode = model.facts, _decode_of(model.config, options)
        engine = {"engine": facts.target, "device": model.device, "precision": facts.precision}
        columns = (SOURCE,) if facts.kind == "translator" else None
        pairs, labels = bool(model.tokenizer.separator), facts.labels or None
        return Answerer(model, options, decode, [model.path / MANIFEST], engine, columns, labels, pairs=pairs)


def _decode_of(config: Config, options: dict[str, Any]) -> DecodeConfig:
    """Return the settings of decoding that options change, without those of what is done with probabilities."""
    of_decoding = {name: value for name, value in options.items() if name not in RULES}
    return override(config, {"decode": of_decoding}, "flags").decode


@dataclass(frozen=True)
class Answerer:
    """A model and what its answers depend on.

    Attributes:
        model: what answers.
        options: options of `predict_stream`: of decoding, and of what is done with probabilities.
        decode: all settings of decoding.
        manifests: the manifests of the models, which hold the hashes of their weights.
        engine: what computes, on which device, in which precision.
        columns: the columns that the task reads, the text first; None where it reads running text.
        labels: the classes, if answers are classes.
        known: the headers of the columns in training. places: their positions, in a table without a header.
        pairs: whether each text is a pair.
    """

    model: Answering
    options: dict[str, Any]
    decode: DecodeConfig
    manifests: list[Path]
    engine: Mapping[str, str]
    columns: tuple[ColumnSpec, ...] | None
    labels: list[str] | None
    known: Sequence[str | None] = ()
    places: Sequence[tuple[int, int]] = ()
    pairs: bool = False

    def specs(self, request: TableRequest) -> ColumnSpecs:
        """Return how the columns of texts are looked for."""
        requested = request.text_column, request.pair_column
        return text_specs(self.columns, self.known, requested, self.pairs, self.places)


@pipes_kept()
def predict_table(request: TableRequest, answerer: Answerer) -> int:
    """Answer each row of a table, write it with the answers, and return the exit code.

    Raises:
        DataError: something is wrong in the table; nothing is written.
        UsageError: a column has the name of an answer, or answers that were begun depend on something else.
        Interrupted: a signal came; the message says how to continue.
    """
    assert request.out is not None
    out = request.out
    if request.probabilities and not answerer.labels:
        raise UsageError("--probabilities is for classifiers", "leave it out")
    state: list[PartialAnswers] = []
    n_rows = 0

    def where_stopped() -> tuple[str, str]:
        if not state or not state[0].n_rows:
            return "; nothing was answered yet", "give the same command again"
        kept = f"{state[0].n_rows:,} of {n_rows:,} rows are answered, and kept in {state[0].folder}"
        return f"; {kept}", "give the same command again: it continues"

    with stop_requests(where_stopped):
        table = scan_table(request.file, *answerer.specs(request))
        n_rows = table.n_rows
        for note in table.notes:
            logger.info(note)
        refuse_unwritable(table, out)
        with partial_answers(out, PREDICTED_TOGETHER) as partial:
            partial.open(_facts(table, request, answerer), n_rows)
            state.append(partial)
            n_before = partial.n_rows
            if n_before:
                logger.info(f"{n_before:,} of {n_rows:,} rows were answered before; continuing")
            _answer(table, partial, request, answerer)
            columns = column_kinds(next(_named(partial, request.prefix)))
            output = OutputTable(table, _named(partial, request.prefix), columns, _free_text(answerer.labels))
            atomic_write_chunks(out, table_bytes(output, out))
    logger.info(f"written: {out}, {counted(n_rows, 'rows')} with {', '.join(columns)}")
    if request.json:
        facts = {"out": str(out), "rows": n_rows, "columns": list(columns), "answered_before": n_before}
        console.write_json(facts | dict(answerer.engine))
    return 0


def _facts(table: InputTable, request: TableRequest, answerer: Answerer) -> dict[str, Any]:
    """Return what the answers depend on."""
    options = {"column": [str(key) for key in table.column.keys], "has_header": table.has_header}
    options |= {"probabilities": request.probabilities, "decode": asdict(answerer.decode), **answerer.engine}
    options |= {name: value for name, value in answerer.options.items() if name not in options["decode"]}
    models = [sha256_regular(manifest) for manifest in answerer.manifests]
    return {"input": table.sha256, "models": models, "options": options, "rows": table.n_rows}


def _answer(table: InputTable, partial: PartialAnswers, request: TableRequest, answerer: Answerer) -> None:
    """Answer the rows that have no answer yet; the first answer shows whether its columns have a place."""
    first = partial.n_rows
    if first:
        _refuse_taken_names(table, request, next(partial.read()))
    if first == table.n_rows:
        return
    texts = itertools.islice(table.texts(), first, None)
    answers = answerer.model.predict_stream(texts, first=first, **answerer.options)
    rows = console.announced(answers, table.n_rows, "answered", unit="rows", first=first)
    while some := [answer_columns(row, request.probabilities) for row in itertools.islice(rows, PREDICTED_TOGETHER)]:
        if not partial.n_rows:
            _refuse_taken_names(table, request, some[0])
        partial.append(some)
    if partial.n_rows != table.n_rows:
        raise DataError(f"{request.file} changed while it was read", "give the command again when it is whole")
    partial.sync()


def _named(partial: PartialAnswers, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the answers as columns; U+FFFD stands for NUL, which a model of bytes may write and no text file holds."""
    for answer in partial.read():
        yield {
            f"{prefix}{name}": value.replace("\0", "\ufffd") if isinstance(value, str) else value
            for name, value in answer.items()
        }


def _refuse_taken_names(table: InputTable, request: TableRequest, answer: Mapping[str, Any]) -> None:
    """Raise UsageError if a column of the answers has the name of one of the table."""
    taken = [f"{request.prefix}{name}" for name in answer if f"{request.prefix}{name}" in table.names]
    if taken:
        raise UsageError(f"{request.file} has a column {taken[0]!r} already", "rename the new ones: --prefix model_")


def _free_text(labels: list[str] | None) -> bool:
    """Return whether answers may hold tabs, quotes and line breaks."""
    return labels is None or any(set(label) & set('\t\r\n"') for label in labels)

"""`glassformer predict` and `predict-table`: texts in, labels, translations or continuations out, in order.

Texts are arguments or lines of stdin, which are answered as they arrive, so a file of any length passes through, and
a program that writes a line gets its answer. One line in is one line out, empty lines included. A table is answered
row by row: it is read once before the first answer, so that nothing wrong in it is found after hours, and written to
`OUT.partial`, which is renamed when it is whole.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glassformer.cli import flags
from glassformer.cli.evaluate import TABLE_SETTINGS
from glassformer.cli.folders import run_folders
from glassformer.config import Config
from glassformer.errors import DataError, UsageError
from glassformer.runs.folder import is_exported
from glassformer.text.answers import PREDICTED_TOGETHER, answer_columns, answer_lines
from glassformer.text.long_text import ArrivingLines
from glassformer.utils import console
from glassformer.utils.formatting import counted

if TYPE_CHECKING:
    from glassformer.data.answered_table import InputTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictArguments:
    """Use a run on the texts given as arguments, or on stdin, one text a line.

    Behind a lone -- everything is text, also what begins with a dash. A pair of texts is "first [SEP] second". Several
    runs of one recipe, separated by commas, answer as one, by the mean of their probabilities. RUN may be an exported
    folder, which is answered by its library.
    """

    usage: ClassVar = "predict RUN[,RUN,…] [TEXT...]"
    example: ClassVar = 'predict runs/imdb "I loved it"'
    sections: ClassVar = ("decode",)
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the matrix products; that of the run when absent."""
    calibrated: bool = False
    """Probabilities of a classifier at the temperature fitted on its validation texts."""
    min_probability: float | None = None
    """Probability below which a classifier answers no label, 0 to 1."""
    json: bool = False
    """Print one JSON object: for each text all classes, scores, n-best, the precision."""


@dataclass(frozen=True)
class PredictTableArguments(PredictArguments):
    """Answer each row of TABLE: .csv, .tsv, .jsonl (or .gz of them), .parquet or .arrow.

    OUT is a new .csv or .jsonl (or .gz of them) with the columns of the answers behind those of the table.
    """

    usage: ClassVar = "predict-table RUN[,RUN,…] TABLE OUT"
    example: ClassVar = "predict-table runs/imdb in.csv out.csv"
    settings: ClassVar = TABLE_SETTINGS
    text_column: str | None = None
    """Column of the texts, by header or number from 1, whatever the task; that of training when absent."""
    probabilities: bool = False
    """Add a column with the probability of each class."""
    prefix: str = ""
    """What stands before the names of the new columns."""


def run_predict(given: flags.Given[PredictArguments]) -> None:
    """Run `glassformer predict`."""
    model, arguments, engine, options = model_of(given)
    texts = given.words[1:] or stdin_lines()
    n = cut = 0
    for n, answer in enumerate(model.predict_stream(texts, **options), start=1):  # noqa: B007
        cut += bool(answer.get("unfinished"))
        if arguments.json:
            console.write_json({**answer, "precision": engine["precision"]})
        else:
            for line in answer_lines(answer):
                console.write(re.sub(r"\r\n|\r|\n", " ", line))
    if cut:
        logger.warning(f"{cut} of {n} translations hit the length limit; a larger --max-new-tokens may help")
    if n == 0:
        logger.warning("nothing came on stdin, so nothing was predicted")


def model_of(given: flags.Given[Any]) -> tuple[Any, Any, dict[str, str], dict[str, Any]]:
    """Return what answers, a run or an exported model, the arguments, what computes, and the options of `predict`."""
    if not given.words:  # its help is wanted
        given.arguments()
    if is_exported(path := Path(given.words[0])):  # without importing torch
        from glassformer.interop.exported import load_exported

        arguments = given.arguments()
        if arguments.precision is not None:
            message = f"{path} is an exported model, whose precision is chosen at export"
            raise UsageError(message, "leave out --precision")
        model: Any = load_exported(path, arguments.device)
        given.laid_over(model.config)
        engine = {"engine": model.facts.target, "device": model.device, "precision": model.facts.precision}
    else:
        paths = run_folders(given.words[0])
        arguments, _ = given.for_run(paths[0])
        import glassformer

        model = glassformer.load(*paths, device=arguments.device, precision=arguments.precision)
        engine = {"engine": "torch", "device": model.device.type, "precision": model.precision}
    options = given.settings() | {"calibrated": arguments.calibrated, "min_probability": arguments.min_probability}
    return model, arguments, engine, options


def stdin_lines() -> ArrivingLines:
    """Return the lines of stdin; of one that is closed there are none."""
    if console.is_terminal(sys.stdin):
        logger.info("reading texts from the keyboard, one a line; end with Ctrl-D (Windows: Ctrl-Z and Enter)")
    return ArrivingLines(sys.stdin.buffer if sys.stdin is not None else None)


def run_predict_table(given: flags.Given[PredictTableArguments]) -> None:
    """Run `glassformer predict-table`; whatever ends it before the last row leaves nothing of OUT."""
    from glassformer.data.answered_table import TableWriter, format_for, scan_table

    model, arguments, engine, options = model_of(given)
    source, out = map(Path, given.words[1:])
    format_for(out)
    if os.path.lexists(out):
        raise UsageError(f"{out} exists", "name a new file, or remove this one")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", "make it, or name another one")
    files = given.laid_over(Config(), given.settings(single=True)).data.files
    named = arguments.text_column, files.pair_column
    table, partial = scan_table(source, model.text_columns(named), files), out.with_name(f"{out.name}.partial")
    for note in table.notes:
        logger.info(note)
    n_done, columns = 0, ()
    with TableWriter(partial, out, table) as writer:
        try:
            for rows in _answered(table, arguments, model, options):
                writer.append(rows)
                n_done, columns = n_done + len(rows), writer.names[len(table.names) :]
            if n_done != table.n_rows:
                raise DataError(f"{source} changed while it was read", "give the command again when it is whole")
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    os.replace(partial, out)
    logger.info(f"written: {out}, {counted(n_done, 'rows')} with {', '.join(columns)}")
    if arguments.json:
        console.write_json({"out": str(out), "rows": n_done, "columns": list(columns)} | engine)


def _answered(
    table: InputTable, arguments: PredictTableArguments, model: Any, options: dict[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows of a table with their answers, some at a time."""
    texts, rows = itertools.tee(table.rows())
    answers: Iterable[Any] = model.predict_stream((text for text, _ in texts), **options)
    shown = console.announced(answers, table.n_rows, "answered", unit="rows")
    while some := list(itertools.islice(shown, PREDICTED_TOGETHER)):
        if arguments.probabilities and "probabilities" not in some[0]:
            message = "probabilities of the classes are of classifiers, and these answers have none"
            raise UsageError(message, "leave out --probabilities")
        found = [answer_columns(row, arguments.probabilities, arguments.prefix) for row in some]
        if taken := [name for name in found[0] if name in table.names]:
            message = f"{table.path} has a column {taken[0]!r} already"
            raise UsageError(message, "rename the new ones: --prefix model_")
        yield [row | answer for answer, (_, row) in zip(found, rows, strict=False)]  # rows last: none is lost

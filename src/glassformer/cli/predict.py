"""`glassformer predict`: text in, labels, translations or continuations out, in the order they came.

Texts are arguments or lines of stdin, which are answered as they arrive, so a file of any length passes through, and
a program that writes a line gets its answer. One line in is one line out, empty lines included. A table is answered
row by row (`predict_table.py`).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glassformer.cli import flags
from glassformer.config.recipes import override
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, is_exported
from glassformer.text.answers import answer_lines
from glassformer.text.long_text import ArrivingLines
from glassformer.utils import console

if TYPE_CHECKING:
    from glassformer.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


OF_TABLES = "text_column pair_column header delimiter quotes encoding out probabilities prefix skip_rows".split()
"""Flags that go with --file."""


@dataclass(frozen=True)
class PredictArguments:
    """Use a run on the texts given as arguments, or on stdin, one text a line.

    Behind a lone -- everything is text, also what begins with a dash. Several runs of one recipe, separated by commas,
    answer as one, by the mean of their probabilities.
    """

    sections: ClassVar = ("decode",)
    pair: str | None = None
    """Second text of a pair (hypothesis, answer), with the first as argument; of many pairs: "first [SEP] second"."""
    prompt: str | None = None
    """Text for a language model to go on from."""
    seed: int | None = None
    """Seed of sampling, the same as --decode-seed."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the matrix products; that of the run when absent."""
    engine: Literal["auto", "torch", "ctranslate2", "onnx"] = "auto"
    """What computes: torch, or a library that the run is exported for at the first use (auto: torch for a run, its
    library for an exported folder)."""
    calibrated: bool = False
    """Probabilities of a classifier at the temperature fitted on its validation texts."""
    min_probability: float | None = None
    """Probability below which a classifier answers no label, 0 to 1."""
    json: bool = False
    """Print one JSON object a line: all classes, scores, n-best, the precision."""
    file: str | None = None
    """Table to answer row by row instead: .csv, .tsv, .jsonl (or .gz of them), .parquet, .arrow."""
    header: Literal["yes", "no"] | None = None
    """Whether the first row of --file is its header; without it, its names and the rows below decide."""
    delimiter: str | None = None
    """What parts the fields of --file; without it, what parts its first hundred rows alike."""
    quotes: Literal["yes", "no"] | None = None
    """Whether quotes in --file hold fields; without it, those of a CSV do, and those of a TSV are characters."""
    encoding: str | None = None
    """Encoding of --file, by Python's name; UTF-8 when absent."""
    text_column: str | None = None
    """Column of --file with the text, or its number from 1; as in training when absent."""
    pair_column: str | None = None
    """Column of --file with the second text of each pair; as in training when absent."""
    out: str | None = None
    """With --file (also -o): where the table goes, with columns of answers: .csv or .jsonl (or .gz of them)."""
    probabilities: bool = False
    """With --file: a column with the probability of each class."""
    prefix: str | None = None
    """With --file: what stands before the names of the new columns."""
    skip_rows: int | None = None
    """With --file: number of rows that are not answered, from the first on, such as those of an interrupted command."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(PredictArguments, flags.long_out(argv), "predict")
    if not words:
        if "--help" in flag_args:
            flags.parse(PredictArguments, flag_args, "predict RUN[,RUN,…] [TEXT ...]")
        raise UsageError("predict takes a run folder", 'as in: glassformer predict runs/imdb "I loved it"')
    if is_exported(Path(words[0])):
        return _predict_exported(words, flag_args)
    paths = flags.run_folders(words[0])
    if (exported := _export_of(paths, flag_args)) is not None:
        return _predict_exported([str(exported), *words[1:]], flag_args)
    arguments, _, options = flags.parse_for_run(PredictArguments, flag_args, paths[0], "predict")
    if arguments.seed is not None:
        options["decode_seed"] = arguments.seed
    texts = words[1:] + ([arguments.prompt] if arguments.prompt is not None else [])
    of_table = _names_table(arguments, texts)
    _note_files(texts)

    import glassformer

    trained = glassformer.load(*paths, device=arguments.device, precision=arguments.precision)
    logger.info(f"computed by torch, {trained.precision}")
    texts = _with_pair(trained.task.tokenizer, texts, arguments)
    options |= {"calibrated": arguments.calibrated, "min_probability": arguments.min_probability}
    if of_table:
        from glassformer.cli.predict_table import Answerer, predict_table

        return predict_table(arguments, Answerer.of_run(trained, options))
    answers = trained.predict_stream(texts or lines_to_answer(), **options)
    return _write(answers, trained.precision if arguments.json else None)


def _export_of(paths: Sequence[Path], flag_args: list[str]) -> Path | None:
    """Return the export that answers for a run, made at the first use; None if torch answers.

    Raises:
        UsageError: an engine is named that cannot hold the run, or is not installed.
    """
    folder = RunFolder(paths[0])
    if not any(flag.startswith("--engine=") for flag in flag_args):
        _name_faster_engine(paths)
        return None
    arguments = flags.parse(PredictArguments, flag_args, f"predict {paths[0]}")
    by_torch = arguments.device not in ("auto", "cpu") or arguments.precision is not None
    if arguments.engine in ("auto", "torch"):
        return None
    if by_torch:
        raise UsageError(f"--engine {arguments.engine} computes in fp32 on cpu", "leave out --device and --precision")
    if len(paths) > 1:
        raise UsageError(f"--engine {arguments.engine} takes one run, {len(paths)} came", "use --engine torch")
    from glassformer.interop.exported import export_of_run

    exported = export_of_run(paths[0], arguments.engine)
    if not is_exported(exported):
        from glassformer.api import load

        folder.refuse_links(folder.exports)
        logger.info(f"exporting {paths[0]} for {arguments.engine}, once")
        result = load(paths[0], device="cpu").export(arguments.engine, exported)
        logger.info(f"check: {result.check_text()}")
    return exported


def _name_faster_engine(paths: Sequence[Path]) -> None:
    """Log which export of a run, if it has one, would answer without starting torch."""
    if len(paths) == 1 and RunFolder(paths[0]).exports.is_dir():
        from glassformer.interop.exported import TORCH_FREE, export_of_run

        made = [name for name in TORCH_FREE if is_exported(export_of_run(paths[0], name))]
        if made:
            logger.info(f"this run is exported for {made[0]}, which starts faster: --engine {made[0]}")


def _predict_exported(words: list[str], flag_args: list[str]) -> int:
    """Predict with an exported model, without importing torch."""
    from glassformer.interop.exported import load_exported

    path = Path(words[0])
    arguments, options = flags.read(PredictArguments, flag_args, f"predict {path}")
    if arguments.precision is not None:
        raise UsageError(f"{path} is an exported model, whose precision is chosen at export", "leave out --precision")
    model = load_exported(path, arguments.device)
    if arguments.engine not in ("auto", model.facts.target):
        raise UsageError(f"{path} was exported for {model.facts.target}, not {arguments.engine}", "leave out --engine")
    override(model.config, options, "flags")
    if arguments.seed is not None:
        options["decode_seed"] = arguments.seed
    texts = words[1:] + ([arguments.prompt] if arguments.prompt is not None else [])
    of_table = _names_table(arguments, texts)
    _note_files(texts)
    texts = _with_pair(model.tokenizer, texts, arguments)
    logger.info(f"computed by {model.facts.target}, {model.facts.precision}")
    options |= {"calibrated": arguments.calibrated, "min_probability": arguments.min_probability}
    if of_table:
        from glassformer.cli.predict_table import Answerer, predict_table

        return predict_table(arguments, Answerer.of_export(model, options))
    answers = model.predict_stream(texts or lines_to_answer(), **options)
    return _write(answers, model.facts.precision if arguments.json else None)


def _note_files(texts: Sequence[str]) -> None:
    """Warn of a text that is the name of a file, which is answered as any other text."""
    for text in texts:
        try:
            is_file = Path(text).is_file()
        except (OSError, ValueError):  # too long for a name, or with a NUL
            continue
        if is_file:
            instead = "--file, or its lines through a pipe" if has_columns(text) else "its lines through a pipe"
            logger.warning(
                f"{text} is a file, and its name is answered as a text; to answer what it holds give {instead}"
            )


def has_columns(name: str) -> bool:
    """Return whether the name of a file is that of a table."""
    from glassformer.data.sources import COLUMN_FILES, TABLES, suffix_of

    return suffix_of(Path(name)) in (*TABLES, *COLUMN_FILES)


def _with_pair(tokenizer: Tokenizer, texts: list[str], arguments: PredictArguments) -> list[str]:
    """Return the texts, or the pair of the only one and of that of --pair."""
    if arguments.pair is None:
        return texts
    if len(texts) != 1:
        raise UsageError(f"--pair is the second text of a pair, and {len(texts)} first ones came", "give one text")
    return [tokenizer.pair(texts[0], arguments.pair)]


def _names_table(arguments: PredictArguments, texts: list[str]) -> bool:
    """Return whether flags name a table; those that go with one are refused without it."""
    given = [name for name in OF_TABLES if getattr(arguments, name)]
    if arguments.file is None and not given:
        return False
    _check_table_flags(arguments, texts, given)
    return True


def _check_table_flags(arguments: Any, texts: list[str], given: Sequence[str]) -> None:
    """Raise UsageError where the flags of a table, those `given`, contradict each other, or the output exists."""
    if arguments.file is None:
        flag = "--" + given[0].replace("_", "-")
        raise UsageError(f"{flag} goes with --file", "name the table: --file in.csv --out out.csv")
    if texts:
        raise UsageError("texts and --file were given", "give one of them")
    if arguments.out is None:
        raise UsageError("--file needs --out", "name the table to write, as in: --out out.csv")
    from glassformer.data.answered_table import format_for

    out = Path(arguments.out)
    format_for(out)
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists", "name a new file, or remove this one")


def _write(answers: Iterable[dict[str, Any]], precision: str | None) -> int:
    """Write answers as they come, as JSON with the precision that they were computed in; return the exit code."""
    n = cut = 0
    for n, result in enumerate(answers, start=1):  # noqa: B007
        cut += bool(result.get("unfinished"))
        if precision is not None:
            console.write_json({**result, "precision": precision})
        else:
            for line in answer_lines(result):
                console.write(re.sub(r"\r\n|\r|\n", " ", line))
    if cut:
        logger.warning(f"{cut} of {n} translations hit the length limit; a larger --max-new-tokens may help")
    if n == 0:
        logger.warning("nothing came on stdin, so nothing was predicted")
    return 0


class LinesToAnswer(ArrivingLines):
    """The lines of stdin, with a warning where they are those of a table."""

    def chunks(self, most: int) -> Iterator[list[str]]:
        for number, lines in enumerate(super().chunks(most)):
            if number == 0 and lines and heads_table(lines[0]):
                logger.warning(
                    "the first line is that of a table, and each line is answered as a text; --file reads one"
                )
            yield lines


def heads_table(line: str) -> bool:
    """Return whether a line is the header of a table, with a usual name for a text, or an object of JSON Lines."""
    from glassformer.data.datasets.columns import TEXT

    if line.startswith("{") and line.endswith("}"):
        return re.match(r'\{\s*"', line) is not None
    rows = ([cell.strip().strip('"').lower() for cell in line.split(delimiter)] for delimiter in ",;\t")
    return any(len(cells) > 1 and not {*cells}.isdisjoint(TEXT.usual) and max(map(len, cells)) <= 30 for cells in rows)


def lines_to_answer() -> ArrivingLines:
    """Return the lines of stdin, each a text to answer."""
    return stdin_lines(LinesToAnswer)


def stdin_lines(kind: type[ArrivingLines] = ArrivingLines) -> ArrivingLines:
    """Return the lines of stdin; of one that is closed there are none."""
    if console.is_terminal(sys.stdin):
        logger.info("reading texts from the keyboard, one a line; end with Ctrl-D (Windows: Ctrl-Z and Enter)")
    return kind(sys.stdin.buffer if sys.stdin is not None else None)

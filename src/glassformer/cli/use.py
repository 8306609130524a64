"""The commands that use a run: `predict` and `predict-table`, `evaluate` and `compare`, `import` and `export`.

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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glassformer.cli.flags import Command, Device, Result, flags_of, run_folder, run_folders, use_of
from glassformer.config import Config, DataConfig
from glassformer.errors import DataError, UsageError
from glassformer.interop.export_facts import Target
from glassformer.runs.folder import RunFolder, is_exported
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.text.answers import PREDICTED_TOGETHER, answer_columns, answer_lines
from glassformer.text.long_text import ArrivingLines
from glassformer.utils import console
from glassformer.utils.formatting import counted

if TYPE_CHECKING:
    from glassformer.data.answered_table import InputTable

logger = logging.getLogger(__name__)

TABLE_SETTINGS = ("pair_column", "header", "delimiter", "quotes", "encoding")
"""How a table is read that a run is used on; without the columns, as in training."""
ANSWER_COLUMNS = ("text_column", "pair_column", "label_column", "src_column", "tgt_column")


class Using(Command):
    """A command that uses a run, several as one, or an exported model."""

    sections: ClassVar = ("decode",)
    device: Device = "auto"
    """Where to compute."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the matrix products; that of the run when absent."""

    @classmethod
    def base_of(cls, words: Sequence[str]) -> Config | None:
        if not words or is_exported(Path(words[0])):  # which is used without importing torch
            return None
        from glassformer.tasks.restoring import settings_of

        return settings_of(RunFolder(run_folders(words[0])[0])) or Config()  # a model folder alone has the default one

    def model(self) -> Any:
        """Return what is used."""
        import glassformer

        paths = [Path(self.words[0])] if self.base is None else run_folders(self.words[0], all_seeds=True)
        model = glassformer.load(*paths, device=self.device, precision=self.precision)
        self.laid_over(model.config)  # refuses what is wrong before the first answer
        return model


class Predict(Using):
    """Use a run on the texts given as arguments, or on stdin, one text a line.

    Behind a lone -- everything is text, also what begins with a dash. A pair of texts is "first [SEP] second". Several
    runs of one recipe, separated by commas, answer as one, by the mean of their probabilities. RUN may be an exported
    folder, which is answered by its library.
    """

    usage: ClassVar = "predict RUN[,RUN,…] [TEXT...]"
    example: ClassVar = 'predict runs/imdb "I loved it"'
    calibrated: bool = False
    """Probabilities of a classifier at the temperature fitted on its validation texts."""
    min_probability: float | None = None
    """Probability below which a classifier answers no label, 0 to 1."""

    def run(self) -> Iterator[Result]:
        model, n = self.model(), 0
        if not (texts := self.words[1:]) and console.is_terminal(sys.stdin):
            logger.info("reading texts from the keyboard, one a line; end with Ctrl-D (Windows: Ctrl-Z and Enter)")
        for answer in self.answers(model, texts or ArrivingLines(sys.stdin.buffer if sys.stdin is not None else None)):
            n += 1
            lines = (re.sub(r"\r\n|\r|\n", " ", line) for line in answer_lines(answer))
            yield answer | {"precision": model.precision}, lines
        if n == 0:
            logger.warning("nothing came on stdin, so nothing was predicted")

    def answers(self, model: Any, texts: Any) -> Iterator[dict[str, Any]]:
        """Return the answers to texts, in their order."""
        rule = {"calibrated": self.calibrated, "min_probability": self.min_probability}
        return model.predict_stream(texts, **self.of_configuration(), **rule)


class PredictTable(Predict):
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

    def run(self) -> Iterator[Result]:
        from glassformer.data.answered_table import TableWriter, format_for, scan_table

        model, (source, out) = self.model(), map(Path, self.words[1:])
        format_for(out)
        if os.path.lexists(out):
            raise UsageError(f"{out} exists", "name a new file, or remove this one")
        if not out.parent.is_dir():
            raise UsageError(f"there is no folder {out.parent}", "make it, or name another one")
        files = self.laid_over(Config(), self.of_configuration(single=True)).data
        table = scan_table(source, model.text_columns((self.text_column, files.pair_column)), files)
        for note in table.notes:
            logger.info(note)
        n_done, columns, partial = 0, (), out.with_name(f"{out.name}.partial")
        with TableWriter(partial, out, table) as writer:
            try:
                for rows in self.answered(table, model):
                    writer.append(rows)
                    n_done, columns = n_done + len(rows), writer.names[len(table.names) :]
                if n_done != table.n_rows:
                    raise DataError(f"{source} changed while it was read", "give the command again when it is whole")
            except BaseException:  # whatever ends it before the last row leaves nothing of OUT
                partial.unlink(missing_ok=True)
                raise
        os.replace(partial, out)
        logger.info(f"written: {out}, {counted(n_done, 'rows')} with {', '.join(columns)}")
        yield {"out": str(out), "rows": n_done, "columns": list(columns), "precision": model.precision}, ()

    def answered(self, table: InputTable, model: Any) -> Iterator[list[dict[str, Any]]]:
        """Yield rows of a table with their answers, some at a time."""
        texts, rows = itertools.tee(table.rows())
        answers = self.answers(model, (text for text, _ in texts))
        shown = console.announced(answers, table.n_rows, "answered", unit="rows")
        while some := list(itertools.islice(shown, PREDICTED_TOGETHER)):
            if self.probabilities and "probabilities" not in some[0]:
                message = "probabilities of the classes are of classifiers, and these answers have none"
                raise UsageError(message, "leave out --probabilities")
            found = [answer_columns(row, self.probabilities, self.prefix) for row in some]
            if taken := [name for name in found[0] if name in table.names]:
                message = f"{table.path} has a column {taken[0]!r} already"
                raise UsageError(message, "rename the new ones: --prefix model_")
            yield [row | answer for answer, (_, row) in zip(found, rows, strict=False)]  # rows last: none is lost


class Evaluate(Using):
    """Score a run: classification and two baselines, translation with signatures, text in nats and bits.

    It is scored on a split of its own data, or on test files. Several runs of one recipe, separated by commas, are
    scored as one, by the mean of their probabilities.
    """

    usage: ClassVar = "evaluate RUN[,RUN,…]"
    example: ClassVar = "evaluate runs/imdb"
    settings: ClassVar = (
        *("data_dir", "test_file", "test_src_file", "test_tgt_file", "label_column", "label_separator"),
        *("src_column", "tgt_column", "text_column", *TABLE_SETTINGS),
    )
    split: Literal["test", "valid", "train"] = "test"
    """Which split of the run's own data."""
    allow_changed_data: bool = False
    """Score even if the run's data has changed since training: warn, and name the files in the result."""

    def run(self) -> Iterator[Result]:
        [path, *_] = run_folders(self.words[0])  # refuses an exported model
        data, model, options = self.data(path, self.base or Config()), self.model(), self.of_configuration()
        yield scores(model.evaluate(self.split, data=data, allow_changed_data=self.allow_changed_data, **options))

    def data(self, path: Path, config: Config) -> DataConfig | None:
        """Return the data to score that the flags name; None for the run's own.

        A run that recorded the columns it read finds them again by itself; of others the flags of training are
        repeated.
        """
        named = self.of_configuration(single=True)
        if (folder := named.pop("data_dir", None)) is not None and not named:
            return replace(config.data, data_dir=folder)
        if not named:
            return None
        if not {"test_file", "test_src_file"} & named.keys():
            name = next(flag.name for flag in flags_of(type(self)) if flag.field in named)
            raise UsageError(f"{name} is of test files, and none is named", "name one: --test-file")
        of_training = ("label_separator", *(() if RunFolder(path).read_data().columns else ANSWER_COLUMNS))
        return self.laid_over(Config(), {name: getattr(config.data, name) for name in of_training} | named).data


def scores(found: JsonObject) -> Result:
    """Return an evaluation: all scores, or in words the headline and the baselines."""
    facts = {name: value for name, value in found.items() if name not in ("examples", "predictions")}
    return facts, score_lines(Evaluation(found["task"], found["split"], found))


def score_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the headline score in words, with how many texts are in training too, and that of each baseline.

    Where training chose its weights by another one, as a language model's by nats per token, that one follows.
    """
    from glassformer.tasks import task_class

    task = task_class(evaluation.task)
    report, chosen, chosen_by = task.report, task.metric.replace("_", " "), evaluation.value(task.metric)
    if joined := evaluation.scores.get("joined"):
        yield f"ensemble of {', '.join(joined)}"
    metric, value, interval = report.score(evaluation)
    shared, n = evaluation.value("also_in_training"), evaluation.value("compared_with_training")
    seen = f" ({shared:,}{'' if n == evaluation.n else f' of {n:,} lines'} also in training)" if shared and n else ""
    other = "" if chosen_by is None or task.metric == metric.name else f"; {chosen} {chosen_by:.4f}"
    scored = counted(evaluation.n, f"{evaluation.split} {report.unit}")
    yield f"{metric.name.replace('_', ' ')} {_with_interval(value, interval)} on {scored}{seen}{other}"
    for name, baseline in evaluation.baselines.items():
        _, value, interval = report.score(Evaluation(scores=baseline), metric.name)
        if value is not None:
            yield f"baseline {report.baselines.get(name, name.replace('_', ' '))}: {_with_interval(value, interval)}"


def _with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    spread = f" (95% interval {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""
    return ("none" if value is None else f"{value:.4f}") + spread


class Compare(Command):
    """Put two runs into one table, and say whether they differ by more than chance.

    A folder of several seeds is its best run by validation.
    """

    usage: ClassVar = "compare RUN RUN"
    example: ClassVar = "compare runs/a runs/b"

    def run(self) -> Iterator[Result]:
        from glassformer.report.compare import compare_runs

        facts = asdict(compare_runs(*map(run_folder, self.words)))
        yield facts, console.lines_of(facts)


class Import(Command):
    """Write the pretrained model SOURCE as a run, and compare it with the library that it came from.

    SOURCE is a folder that save_pretrained of Hugging Face's transformers wrote, or one of CTranslate2.
    Neither a pickle nor code is read.
    """

    usage: ClassVar = "import SOURCE"
    example: ClassVar = "import all-MiniLM-L6-v2 --out runs/minilm"
    out: str | None = None
    """Folder of the run, new or empty."""
    max_len: int | None = None
    """Most tokens of a text; all positions of the model when absent."""

    def run(self) -> Iterator[Result]:
        if self.out is None:
            raise UsageError("import needs --out, the folder of the run to write", f"as in: {self.example}")
        from glassformer.interop.transfer import import_folder

        result = import_folder(self.words[0], self.out, self.max_len)
        source = result.model.source
        what = f"{result.out}: {result.model.task}, from {source.family} ({source.library})"
        checked = "not checked: the library that it came from is not installed"
        shown = {"written": what, "note": result.model.notes, "check": result.check.words if result.check else checked}
        yield (result.to_json(), console.lines_of(shown | {"use it": use_of(result.out, result.model.tokenizer)}))


class Export(Command):
    """Write a run into the new folder OUT in the form of another library, load it there, and compare its answers."""

    usage: ClassVar = "export RUN OUT"
    example: ClassVar = "export runs/demo exported --to ctranslate2"
    to: Target | None = None
    """Library to write for."""
    quantization: Literal["int8", "float16", "bfloat16"] | None = None
    """Numbers of the weights (ctranslate2); float32 when absent."""
    member: int | None = None
    """Model of an ensemble to export, counted from 0."""
    license: str | None = None
    """Identifier of a licence for the card, such as cc-by-4.0; none when absent."""
    allow_changed_data: bool = False
    """Compare on the run's data even if it has changed since training."""

    def run(self) -> Iterator[Result]:
        if self.to is None:
            raise UsageError("export needs --to, the library to write for", "one of: ctranslate2, hf, onnx")
        from glassformer.api import load

        trained, out = load(run_folder(self.words[0]), device="cpu"), Path(self.words[1])
        options = {name: getattr(self, name) for name in ("quantization", "member", "license", "allow_changed_data")}
        result = trained.export(self.to, out, **options)
        what = f"{result.out}: {result.facts.architecture}, {result.facts.dtype}"
        shown = {"written": what, "note": result.facts.notes, "check": result.check_text()}
        yield result.to_json(), console.lines_of(shown | {"use it": use_of(result.out, trained.task.tokenizer)})

"""`glassformer evaluate`: all scores of a run, on its own test split or on files it has never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from glassformer.cli import flags
from glassformer.config import Config, DataConfig, FilesConfig
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import DataRecord, Evaluation, JsonObject
from glassformer.utils import console
from glassformer.utils.formatting import counted


def write_scores(scores: JsonObject, as_json: bool) -> None:
    """Print the headline score of an evaluation and the baselines' scores, or with `as_json` all scores."""
    if as_json:
        console.write_json({k: v for k, v in scores.items() if k not in ("examples", "predictions")})
        return
    evaluation = Evaluation(scores["task"], scores["split"], scores)
    if joined := scores.get("joined"):
        console.write(f"ensemble of {', '.join(joined)}")
    console.write(headline_of(evaluation))
    for line in baseline_lines(evaluation):
        console.write(line)


def write_seeds_scores(report: JsonObject, as_json: bool) -> None:
    """Print the mean test score of several seeds and the score of their ensemble, or with `as_json` the report."""
    if as_json:
        console.write_json(report)
        return
    if test := report["test"]:
        spread = f", SD {test['sd']:.4f}" if test["sd"] is not None else ""
        between = f"{test['min']:.4f} to {test['max']:.4f}"
        console.write(f"{_title(test['metric'])} {test['mean']:.4f} (mean of {test['n']} seeds{spread}; {between})")
    if ensemble := report["ensemble"]:
        console.write(f"ensemble of all seeds: {ensemble['value']:.4f}{_interval(ensemble['ci95'])}")


def headline_of(evaluation: Evaluation) -> str:
    """Return the headline score in words: `accuracy 0.988 (95% interval 0.982 to 0.992) on 2,000 test examples`.

    Where training chose its weights by another one, as a language model's by nats per token, that one follows.
    """
    from glassformer.tasks import task_class

    task = task_class(evaluation.task)
    report, chosen_by = task.report, evaluation.value(task.metric)
    metric, value, interval = report.score(evaluation)
    other = "" if chosen_by is None or task.metric == metric.name else f"; {_title(task.metric)} {chosen_by:.4f}"
    text = "none" if value is None else f"{value:.4f}"
    scored = counted(evaluation.n, f"{evaluation.split} {report.unit}")
    return f"{_title(metric.name)} {text}{_interval(interval)} on {scored}{_seen(evaluation)}{other}"


def _seen(evaluation: Evaluation) -> str:
    """Return how many of the scored texts are in training too; empty if none is."""
    shared, n = evaluation.value("also_in_training"), evaluation.value("compared_with_training")
    if not shared or not n:
        return ""
    what = "" if n == evaluation.n else f" of {n:,} lines"
    return f" ({shared:,}{what} also in training)"


def baseline_lines(evaluation: Evaluation) -> list[str]:
    """Return each baseline that has the headline score, as a line."""
    from glassformer.tasks import task_class

    report = task_class(evaluation.task).report
    metric, lines = report.score(evaluation).metric, []
    for name, scores in evaluation.baselines.items():
        _, value, interval = report.score(Evaluation(scores=scores), metric.name)
        if value is not None:
            lines.append(f"baseline {report.baselines.get(name, _title(name))}: {value:.4f}{_interval(interval)}")
    return lines


def _title(name: str) -> str:
    return name.replace("_", " ")


def _interval(interval: list[float | int] | None) -> str:
    return f" (95% interval {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""


@dataclass(frozen=True)
class EvaluateArguments:
    """Score a run: classification and two baselines, translation with signatures, text in nats and bits.

    Several runs of one recipe, separated by commas, are scored as one, by the mean of their probabilities.
    """

    sections: ClassVar = ("decode",)
    split: Literal["test", "valid", "train"] = "test"
    """Which split of the run's own data."""
    data_dir: str | None = None
    """Where the run's built-in data set lies now, if not where it lay."""
    test_file: str | None = None
    """Own test data instead: CSV, TSV, JSONL or .txt, as in training."""
    src_file: str | None = None
    """Own source sentences instead, one a line."""
    ref_file: str | None = None
    """Their translations, one a line."""
    header: Literal["yes", "no"] | None = None
    """Whether the first row of --test-file is its header; without it, its names and the rows below decide."""
    delimiter: str | None = None
    """What parts the fields of --test-file; without it, what parts its first hundred rows alike."""
    quotes: Literal["yes", "no"] | None = None
    """Whether quotes in --test-file hold fields; without it, those of a CSV do, and those of a TSV are characters."""
    encoding: str | None = None
    """Encoding of own test data, by Python's name; UTF-8 when absent."""
    text_column: str | None = None
    """Column with the text; as in training when absent."""
    pair_column: str | None = None
    """Column with the second text of each pair; as in training when absent."""
    label_column: str | None = None
    """Column with the label; as in training when absent."""
    label_separator: str | None = None
    """What parts the labels of a cell, where a text may have several; as in training when absent."""
    src_column: str | None = None
    """Column with the source sentence; as in training when absent."""
    tgt_column: str | None = None
    """Column with the target sentence; as in training when absent."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the matrix products; that of the run when absent."""
    allow_changed_data: bool = False
    """Score even if the run's data has changed since training: warn, and name the files in the result."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(EvaluateArguments, argv, "evaluate")
    if "--help" in flag_args and not words:
        flags.parse(EvaluateArguments, flag_args, "evaluate RUN[,RUN,…]")
    paths = flags.run_folders(flags.one_word(words, "run folder", "evaluate runs/imdb"))
    arguments, config, options = flags.parse_for_run(EvaluateArguments, flag_args, paths[0], "evaluate")
    data = test_data(arguments, config, RunFolder(paths[0]).read_data())

    import glassformer

    trained = glassformer.load(*paths, device=arguments.device, precision=arguments.precision)
    allow = arguments.allow_changed_data
    scores = trained.evaluate(arguments.split, data=data, allow_changed_data=allow, **options)
    write_scores(scores, arguments.json)
    return 0


def test_data(arguments: EvaluateArguments, config: Config, record: DataRecord) -> DataConfig | None:
    """Return the data to score that the flags name; None for the run's own.

    A run that recorded the columns it read finds them again by itself; of others the flags of training are repeated.
    """
    test, src, ref = arguments.test_file, arguments.src_file, arguments.ref_file
    if (src is None) != (ref is None):
        hint = "give both: --src-file s.en --ref-file r.de"
        raise UsageError("--src-file and --ref-file go together", hint)
    if arguments.data_dir and config.data.dataset == "files":
        message = "--data-dir is where a built-in data set lies, and this run was trained on files"
        raise UsageError(message, "leave it out; to score another file, name it with --test-file")
    if test is None and src is None:
        return replace(config.data, data_dir=arguments.data_dir) if arguments.data_dir else None
    if test is not None and src is not None:
        raise UsageError("--test-file and --src-file name two test sets", "give one of them")
    if arguments.split != "test":
        message = f"--split {arguments.split} is of the run's own data, and files were given"
        raise UsageError(message, "give one of them")
    names = ("text_column", "pair_column", "label_column", "src_column", "tgt_column")
    given = {name: getattr(arguments, name) for name in names}
    columns = {n: value or (None if record.columns else getattr(config.data.files, n)) for n, value in given.items()}
    separator = arguments.label_separator or config.data.files.label_separator
    files = FilesConfig(test_file=test, test_src_file=src, test_tgt_file=ref, label_separator=separator)
    files = replace(files, **columns)
    files = replace(files, header=arguments.header, delimiter=arguments.delimiter, quotes=arguments.quotes)
    files = replace(files, encoding=arguments.encoding or "utf-8")
    return DataConfig(files=files)

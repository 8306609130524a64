"""`glassformer evaluate` and `compare`: the scores of a run, on its splits or on files, and of runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from glassformer.cli import flags
from glassformer.cli.folders import run_folder, run_folders
from glassformer.config import Config, DataConfig
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.utils import console
from glassformer.utils.formatting import counted

TABLE_SETTINGS = ("pair_column", "header", "delimiter", "quotes", "encoding")
"""How a table is read that a run is used on; without the columns, as in training."""
ANSWER_COLUMNS = ("text_column", "pair_column", "label_column", "src_column", "tgt_column")


@dataclass(frozen=True)
class EvaluateArguments:
    """Score a run: classification and two baselines, translation with signatures, text in nats and bits.

    It is scored on a split of its own data, or on test files. Several runs of one recipe, separated by commas, are
    scored as one, by the mean of their probabilities.
    """

    usage: ClassVar = "evaluate RUN[,RUN,…]"
    example: ClassVar = "evaluate runs/imdb"
    sections: ClassVar = ("decode",)
    settings: ClassVar = (
        *("data_dir", "test_file", "test_src_file", "test_tgt_file", "label_column", "label_separator"),
        *("src_column", "tgt_column", "text_column", *TABLE_SETTINGS),
    )
    split: Literal["test", "valid", "train"] = "test"
    """Which split of the run's own data."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["fp32", "bf16"] | None = None
    """Of the matrix products; that of the run when absent."""
    allow_changed_data: bool = False
    """Score even if the run's data has changed since training: warn, and name the files in the result."""
    json: bool = False
    """Print one JSON object."""


def run_evaluate(given: flags.Given[EvaluateArguments]) -> None:
    """Run `glassformer evaluate`."""
    paths = run_folders(given.words[0]) if given.words else []
    if not paths:  # its help is wanted
        given.arguments()
    arguments, config = given.for_run(paths[0])
    data = test_data(given, config, paths[0])

    import glassformer

    trained = glassformer.load(*paths, device=arguments.device, precision=arguments.precision)
    allow = arguments.allow_changed_data
    scores = trained.evaluate(arguments.split, data=data, allow_changed_data=allow, **given.settings())
    write_scores(scores, arguments.json)


def test_data(given: flags.Given[Any], config: Config, path: Path) -> DataConfig | None:
    """Return the data to score that the flags name; None for the run's own.

    A run that recorded the columns it read finds them again by itself; of others the flags of training are repeated.
    """
    named = dict(given.settings(single=True))
    if (folder := named.pop("data_dir", None)) is not None and not named:
        return replace(config.data, data_dir=folder)
    if not named:
        return None
    if not {"test_file", "test_src_file"} & named.keys():
        name = next(flag.name for flag in flags.flags_of(given.cls) if flag.field in named)
        raise UsageError(f"{name} is of test files, and none is named", "name one: --test-file")
    of_training = ("label_separator", *(() if RunFolder(path).read_data().columns else ANSWER_COLUMNS))
    repeated = {name: getattr(config.data.files, name) for name in of_training}
    return given.laid_over(Config(), repeated | named).data


def write_scores(scores: JsonObject, as_json: bool) -> None:
    """Print the headline score of an evaluation and the baselines' scores, or with `as_json` all scores."""
    if as_json:
        console.write_json({k: v for k, v in scores.items() if k not in ("examples", "predictions")})
        return
    if joined := scores.get("joined"):
        console.write(f"ensemble of {', '.join(joined)}")
    for line in score_lines(Evaluation(scores["task"], scores["split"], scores)):
        console.write(line)


def write_seeds_scores(report: JsonObject, as_json: bool) -> None:
    """Print the mean score of several seeds and the score of their ensemble, or with `as_json` the report."""
    if as_json:
        console.write_json(report)
        return
    if score := report["score"]:
        spread = f", SD {score['sd']:.4f}" if score["sd"] is not None else ""
        between = f"{score['min']:.4f} to {score['max']:.4f}"
        console.write(f"{_title(score['metric'])} {score['mean']:.4f} (mean of {score['n']} seeds{spread}; {between})")
    if ensemble := report["ensemble"]:
        console.write(f"ensemble of all seeds: {ensemble['value']:.4f}{_interval(ensemble['ci95'])}")


def score_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the headline score in words, with how many texts are in training too, and that of each baseline.

    Where training chose its weights by another one, as a language model's by nats per token, that one follows.
    """
    from glassformer.tasks import task_class

    task = task_class(evaluation.task)
    report, chosen_by = task.report, evaluation.value(task.metric)
    metric, value, interval = report.score(evaluation)
    scored = counted(evaluation.n, f"{evaluation.split} {report.unit}")
    shared, n = evaluation.value("also_in_training"), evaluation.value("compared_with_training")
    seen = f" ({shared:,}{'' if n == evaluation.n else f' of {n:,} lines'} also in training)" if shared and n else ""
    text = "none" if value is None else f"{value:.4f}"
    other = "" if chosen_by is None or task.metric == metric.name else f"; {_title(task.metric)} {chosen_by:.4f}"
    yield f"{_title(metric.name)} {text}{_interval(interval)} on {scored}{seen}{other}"
    for name, scores in evaluation.baselines.items():
        _, value, interval = report.score(Evaluation(scores=scores), metric.name)
        if value is not None:
            yield f"baseline {report.baselines.get(name, _title(name))}: {value:.4f}{_interval(interval)}"


def _title(name: str) -> str:
    return name.replace("_", " ")


def _interval(interval: Sequence[float | int] | None) -> str:
    return f" (95% interval {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""


@dataclass(frozen=True)
class CompareArguments:
    """Put two runs into one table, and say whether they differ by more than chance.

    A folder of several seeds is its best run by validation.
    """

    usage: ClassVar = "compare RUN RUN"
    example: ClassVar = "compare runs/a runs/b"
    json: bool = False
    """Print one JSON object."""


def run_compare(given: flags.Given[CompareArguments]) -> None:
    """Run `glassformer compare`."""
    arguments, (first, second) = given.arguments(), map(run_folder, given.words)

    from glassformer.report.compare import compare_runs

    comparison = compare_runs(first, second)
    if arguments.json:
        console.write_json(asdict(comparison))
        return
    console.write_rows(comparison.rows)
    if comparison.test:
        columns = "test metric difference ci95 p_value n".split()
        console.write_rows([{name: comparison.test[name] for name in columns}])
    console.write(comparison.verdict)

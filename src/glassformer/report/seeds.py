"""What several seeds of one recipe say together: mean, spread and the best by validation.

One seed's score is one draw; a recipe is judged by the mean, and a difference by the spread. The best is chosen on
validation, and its test score is not the recipe's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.evaluate.metrics import Metric
from glassformer.report import text
from glassformer.report.run_record import RunRecord, load_run_record, readable_records
from glassformer.runs.folder import SeedsFolder
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import Score
from glassformer.utils.atomic_io import atomic_write_text, write_json
from glassformer.utils.formatting import cell_text, code, duration, fenced, glassformer_command, table


@dataclass(frozen=True)
class SeedsRecord:
    """The runs of a seeds folder that were scored, and the seeds that were asked for.

    Attributes:
        evaluation: of all runs as one, an ensemble; None where they were not scored so.
    """

    path: Path
    seeds: list[int]
    runs: list[RunRecord]
    evaluation: Evaluation | None = None

    @property
    def best(self) -> RunRecord:
        """Return the run with the best validation; the first if there was none."""
        metric = self.runs[0].metric
        sign = 1 if metric.higher_is_better else -1
        scored = [run for run in self.runs if best_validation_score(run) is not None] or self.runs[:1]
        return max(scored, key=lambda run: sign * (best_validation_score(run) or 0.0))

    @property
    def missing(self) -> list[int]:
        there = {run.config.train.seed for run in self.runs}
        return [seed for seed in self.seeds if seed not in there]

    @property
    def complete(self) -> bool:
        return all(SeedsFolder(self.path).run(seed).read_divergence() is not None for seed in self.missing)

    @property
    def ensemble(self) -> Score | None:
        return None if self.evaluation is None else self.runs[0].task_report.score(self.evaluation)

    def scores(self) -> list[float]:
        return [value for run in self.runs if (value := run.score.value) is not None]


def load_seeds(folder: SeedsFolder) -> SeedsRecord:
    """Read what the runs of a seeds folder say; a CheckpointError names a damaged file, or that none was scored."""
    seeds = folder.read()[1]
    runs = [load_run_record(run.path) for run in folder.finished]
    if not runs:
        _ = folder.best  # raises, and says how to go on
    return SeedsRecord(folder.path, seeds, runs, folder.read_ensemble())


def best_validation_score(run: RunRecord) -> float | None:
    """Return the validation metric of the selected weights."""
    best = run.best_validation()
    return run.initial_score if best is None else run.validation_score(best)


def summary_stats(values: Sequence[float]) -> JsonObject:
    """Return n, mean, sd (of a sample; None for one value), min and max."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"n": len(values), "mean": statistics.fmean(values), "sd": sd, "min": min(values), "max": max(values)}


def mean_text(metric: Metric, values: Sequence[float]) -> str:
    """Return a mean with its spread: `87.3% (sd 0.4, 86.9–87.7%)`."""
    facts = summary_stats(values)
    return metric.around(facts["mean"], facts["sd"], facts["min"], facts["max"])


def _as_one(facts: SeedsRecord) -> str:
    """Return a sentence on the ensemble of all seeds, with its score if known."""
    words = ",".join(f"{facts.path.name}/{run.path.name}" for run in facts.runs)
    if ensemble := facts.ensemble:
        ensemble_of = facts.runs[0].task_report.averaged[0]
        interval = f" (95%: {ensemble.metric.between(ensemble.interval)})" if ensemble.interval else ""
        sentence = f"Their ensemble, by the mean {ensemble_of}: **{ensemble.text}**{interval}. `predict` uses it"
    else:
        sentence = "Their ensemble is usually better than the best of them. `evaluate` and `predict` use it"
    members = len(facts.runs) * facts.runs[0].config.model.ensemble_size
    return (
        f"{sentence} if they are named together, `{words}`; for one run that averages as many models, train with "
        f"`--model.ensemble-size {members}`."
    )


def write_seeds_report(folder: SeedsFolder) -> SeedsRecord:
    """Write report.md and report.json of a seeds folder, and return what they say.

    Raises:
        CheckpointError: no seed was scored, or a file is damaged.
    """
    facts = load_seeds(folder)
    with readable_records(folder.path):
        report, markdown = seeds_report(facts), seeds_markdown(facts)
    write_json(folder.report_json, report)
    atomic_write_text(folder.report, markdown)
    return facts


def seeds_report(facts: SeedsRecord) -> JsonObject:
    """Return the report as data. `best` is a folder's name, None while seeds that may still be trained are missing."""
    ensemble = facts.ensemble
    first, valid = facts.runs[0], [value for run in facts.runs if (value := best_validation_score(run)) is not None]
    return {
        "task": first.config.task,
        "recipe": first.name,
        "seeds": facts.seeds,
        "missing": facts.missing,
        "best": facts.best.path.name if facts.complete else None,
        "valid": {"metric": first.metric.name, **summary_stats(valid)} if valid else None,
        "test": {"metric": first.score.metric.name, **summary_stats(facts.scores())} if facts.scores() else None,
        "ensemble": ensemble and {"metric": ensemble.metric.name, "value": ensemble.value, "ci95": ensemble.interval},
        "runs": [_run_facts(run) for run in facts.runs],
    }


def _run_facts(run: RunRecord) -> JsonObject:
    _, value, interval = run.score
    row: dict[str, Any] = {"run": run.path.name, "seed": run.config.train.seed, "valid": best_validation_score(run)}
    return row | {"test": value, "ci95": interval, "steps": run.steps, "seconds": run.seconds}


def headline(facts: SeedsRecord) -> str:
    """Return the mean of the seeds as a sentence."""
    first = facts.runs[0]
    metric, split = first.score.metric, first.evaluation.split if first.evaluation else "test"
    n = len(facts.runs)
    return f"{metric.title} on the {split} split, {n} seeds: **{mean_text(metric, facts.scores())}**."


def seeds_markdown(facts: SeedsRecord) -> str:
    """Return the report as Markdown."""
    first, best = facts.runs[0], facts.best
    validation, test = first.metric, first.score.metric
    rows = []
    for run in facts.runs:
        valid, (_, value, interval) = best_validation_score(run), run.score
        rows.append(
            [
                run.path.name + (", best by validation" if run is best else ""),
                "" if valid is None else validation.write(valid),
                "" if value is None else test.write(value),
                test.between(interval),
                f"{run.steps:,}",
                duration(run.seconds or 0),
            ]
        )
    scored = "test" if first.evaluation and first.evaluation.split == "test" else "evaluation"
    header = ["", f"validation {validation.title}", f"{scored} {test.title}", "95% interval", "steps", "time"]
    parts = [
        f"# {cell_text(first.name)}, {len(facts.runs)} seeds",
        f"A {first.task_report.model_name} trained on {text.dataset(first)}, with several seeds of "
        f"initial weights and data order. {headline(facts)}",
        f"*{text.model(first)}*",
        *text.warnings(best),
        table(header, rows),
        "Each has its own report in its folder. The mean is what the recipe gives; the spread (sd, lowest and highest) "
        f"is what chance does to one run of it. The best by validation is {best.path.name}: it is what `predict`, "
        "`evaluate` and `explain` use of this folder, and its test score is one draw, not the recipe's.",
    ]
    if len(facts.runs) > 1:
        parts.append(_as_one(facts))
    if facts.missing:
        named = ", ".join(map(str, facts.missing))
        go_on = code(glassformer_command("train", "--resume", facts.path.name))
        parts.append(f"Without a score: seed {named}. Go on with {go_on}.")
    parts += ["## Use it", fenced(text.example_command(first, facts.path.name), "sh")]
    return "\n\n".join(parts) + "\n"

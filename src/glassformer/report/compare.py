"""Runs side by side: one row each, and for each pair whether they differ by more than chance.

Two intervals that overlap do not prove two models equal; on the same examples a paired test sees more. It
needs the predictions that both runs kept when they were evaluated. Where both are folders of several seeds their
means are compared: that asks about the recipes and not about two models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import paired
from glassformer.evaluate.significance import CHANCE, holm, welch
from glassformer.report.run_record import RunRecord, load_run_record, readable_records
from glassformer.report.seeds import load_seeds, summary_stats
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.records import JsonObject, SplitRecord
from glassformer.tasks.reporting import answer_text


@dataclass(frozen=True)
class Comparison:
    """Rows for a table, tests, sentences on them, and what stood in the way of others.

    Attributes:
        rows: run, name, task, dataset, split, n, metric, value, ci95, seeds, sd, parameters, steps, seconds, valid.
            Of several seeds: value is the mean, sd their spread, the rest the best's by validation.
        tests: first, second, test, metric, difference (first − second), ci95, p_value, p_holm (corrected for the
            number of pairs), n.
        verdicts: a sentence a test, in their order.
        notes: sentences on pairs that could not be tested.
    """

    rows: list[dict[str, Any]]
    tests: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """What a path stands for: a run, or several seeds with the best among them by validation."""

    path: Path
    run: RunRecord
    scores: list[float]

    @classmethod
    def of(cls, path: Path | str) -> Compared:
        """Read a run folder or a folder of seeds; the errors are those of `compare_runs`."""
        if SeedsFolder(path).exists:
            seeds = load_seeds(SeedsFolder(path))
            return cls(seeds.path, seeds.best, seeds.scores())
        return cls(Path(path), load_run_record(path), [])

    @property
    def several(self) -> bool:
        return len(self.scores) > 1


def compare_runs(paths: Sequence[Path | str]) -> Comparison:
    """Put run folders, or folders of seeds, side by side, in their order.

    Raises:
        CheckpointError: one of them is not a run folder or has a damaged file.
    """
    with readable_records(*map(Path, paths)):
        return _compared(list(map(Compared.of, paths)))


def _compared(compared: Sequence[Compared]) -> Comparison:
    """Return the rows and the tests of what was read."""
    answers = [load_predictions(one.run) for one in compared]
    comparison = Comparison(rows=[_row(one) for one in compared])
    for (first, of_first), (second, of_second) in combinations(zip(compared, answers, strict=True), 2):
        outcome = _tested(first, second, (of_first, of_second))
        if isinstance(outcome, str):
            comparison.notes.append(f"{first.path} and {second.path} were not tested: {outcome}")
            continue
        comparison.tests.append({"first": str(first.path), "second": str(second.path), **outcome})
        for one, other in ((first, second), (second, first)):
            if one.several and not other.several:
                comparison.notes.append(
                    f"{one.path} stands beside {other.path} with its best by validation, {one.run.path.name}."
                )
    corrected = holm([test["p_value"] for test in comparison.tests])
    for test, p_value in zip(comparison.tests, corrected, strict=True):
        test["p_holm"] = p_value
        run = next(one.run for one in compared if str(one.path) == test["first"])
        unit = test.get("unit", run.task_report.unit)
        comparison.verdicts.append(verdict(test, run.task_report.metric(test["metric"]), unit, len(corrected)))
    return comparison


def verdict(test: dict[str, Any], metric: Metric, unit: str, n_tests: int = 1) -> str:
    """Say in a sentence who is better by how much, and whether that is more than chance.

    `unit` is what the test's n counts. Of several tests the p-value is the corrected one.
    """
    first, second, difference, p_value = test["first"], test["second"], test["difference"], test["p_holm"]
    value = metric.write(abs(difference))
    what = f"{value.removesuffix('%')} points" if value.endswith("%") else f"{value} ({metric.title})"
    p = "p < .001" if p_value < 0.001 else f"p = {f'{p_value:.3f}'.removeprefix('0')}"
    how = f"{p}, {test['test']}, {test['n']:,} {unit}" + (f"; corrected for {n_tests} pairs" if n_tests > 1 else "")
    if p_value >= CHANCE:
        return f"{first} and {second} differ by {what}, which may be chance ({how})."
    better, than = (first, second) if (difference > 0) == metric.higher_is_better else (second, first)
    return f"{better} is better than {than} by {what}, which is more than chance ({how})."


def load_predictions(run: RunRecord) -> list[JsonObject] | None:
    """Read what was predicted, each with what was right; None when a run kept none or its task has no pairs.

    A CheckpointError names a line that does not hold both.
    """
    columns, folder = run.task_report.comparison_keys, RunFolder(run.path)
    if columns is None or (stored := folder.read_predictions()) is None:
        return None
    rows: list[JsonObject] = []
    for number, row in enumerate(stored, start=1):
        values = [row.get(column) for column in columns] if isinstance(row, dict) else [None]
        if not all(isinstance(value, str | int | float | list) for value in values):
            raise CheckpointError(f"{folder.predictions}:{number} is not an object with {' and '.join(columns)}.")
        rows.append(dict(zip(columns, values, strict=True)))
    return rows


def _row(one: Compared) -> dict[str, Any]:
    """Return a line of the table; what is unknown is None."""
    run = one.run
    metric, value, interval = run.score
    best, evaluation = run.best_validation(), run.evaluation
    spread = summary_stats(one.scores) if one.several else {"mean": value, "sd": None}
    return {
        "run": str(one.path),
        "name": run.name,
        "task": run.config.task,
        "dataset": run.config.data.dataset,
        "split": evaluation.split if evaluation else None,
        "n": evaluation.n or None if evaluation else None,
        "metric": metric.name,
        "value": spread["mean"],
        "ci95": None if one.several else interval,
        "seeds": len(one.scores) or 1,
        "sd": spread["sd"],
        "parameters": run.n_parameters,
        "steps": run.steps or None,
        "seconds": run.seconds,
        "valid": {run.metric.name: (best.valid or {}).get(run.metric.name)} if best else None,
    }


def _tested(first: Compared, second: Compared, answers: Sequence[list[JsonObject] | None]) -> dict[str, Any] | str:
    """Return the test of two runs or of two sets of seeds, or the reason why there is none."""
    one, two = first.run, second.run
    if one.config.task != two.config.task:
        return f"one is {one.config.task}, the other {two.config.task}."
    if one.score.metric != two.score.metric:
        return f"one is scored in {one.score.metric.title}, the other in {two.score.metric.title}."
    of_one, of_two = _scored_split(one).sha256, _scored_split(two).sha256
    if of_one and of_two and of_one != of_two:
        return "they were not evaluated on the same examples."
    tokenizers = one.data.tokenizer.get("sha256"), two.data.tokenizer.get("sha256")
    if one.score.metric.name.endswith("_per_token") and tokenizers[0] != tokenizers[1]:
        return "a score for each token does not compare where the tokenizers differ."
    if first.several and second.several:
        return welch(first.scores, second.scores) | {"metric": one.score.metric.name}
    return _paired(one, two, answers)


def _scored_split(run: RunRecord) -> SplitRecord:
    """Return the split that a run was scored on, as far as it is known."""
    return run.data.splits.get(run.evaluation.split if run.evaluation else "test", SplitRecord())


def _paired(first: RunRecord, second: RunRecord, answers: Sequence[list[JsonObject] | None]) -> dict[str, Any] | str:
    if (keys := first.task_report.comparison_keys) is None:
        return f"there is no paired test of a {first.task_report.model_name}."
    of_first, of_second = answers
    if of_first is None or of_second is None:
        where = " or ".join(str(run.path) for run, of in zip((first, second), answers, strict=True) if not of)
        return f"no predictions.jsonl in {where}, which `glassformer train --resume` would finish."
    truth, others = ([answer_text(row[keys[0]]) for row in of] for of in (of_first, of_second))
    if truth != others or not truth:
        return "they were not evaluated on the same examples."
    ours, theirs = (run.task_report.scoring(run.evaluation.scores if run.evaluation else {}) for run in (first, second))
    if ours.settings != theirs.settings:
        return f"one was scored with {ours.settings}, the other with {theirs.settings} (--bleu-tokenize)."
    return paired(ours, of_first, of_second)

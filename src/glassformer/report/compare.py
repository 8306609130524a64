"""Runs side by side: one row each, and for pairs with stored predictions, whether they really differ.

Two intervals that overlap do not prove two models equal; on the same examples a paired test sees more. It
needs the predictions that both runs kept when they were evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.report.facts import RunFacts, load_facts
from glassformer.runs.folder import RunFolder

Answers = tuple[list[str], list[str]]
"""What was right and what was predicted, example by example."""


@dataclass(frozen=True)
class Comparison:
    """Rows for a table, paired tests, and what stood in the way of others.

    Attributes:
        rows: run, name, task, dataset, split, n, metric, value, ci95, parameters, steps, seconds, valid.
        tests: first, second, test, metric, difference (first − second), ci95, p_value, n.
        notes: sentences on pairs that could not be tested.
    """

    rows: list[dict[str, Any]]
    tests: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare_runs(paths: Sequence[Path | str]) -> Comparison:
    """Put run folders side by side, in their order.

    Raises:
        CheckpointError: one of them is not a run folder or has a damaged file.
    """
    answered = [(run, load_predictions(run)) for run in map(load_facts, paths)]
    comparison = Comparison(rows=[_row(run) for run, _ in answered])
    for (first, of_first), (second, of_second) in combinations(answered, 2):
        outcome = _paired(first, second, (of_first, of_second))
        if isinstance(outcome, str):
            comparison.notes.append(f"{first.path} and {second.path} were not tested: {outcome}")
        else:
            comparison.tests.append({"first": str(first.path), "second": str(second.path), **outcome})
    return comparison


def load_predictions(run: RunFacts) -> Answers | None:
    """Read what was right and what was predicted; None when a run kept none or its task has no pairs.

    A CheckpointError names a line that does not hold both.
    """
    columns, folder = run.telling.compared, RunFolder(run.path)
    rows = folder.read_predictions() if columns else None
    if columns is None or rows is None:
        return None
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row.keys() >= {*columns}:
            wanted = " and ".join(columns)
            raise CheckpointError(f"{folder.predictions}:{number} is not an object with {wanted}.")
    right, predicted = ([str(row[column]).strip() for row in rows] for column in columns)
    return right, predicted


def _row(run: RunFacts) -> dict[str, Any]:
    """Return a run's line of the table; what is unknown is None."""
    metric, value, interval = run.score
    best, evaluation = run.best_validation(), run.evaluation
    return {
        "run": str(run.path),
        "name": run.name,
        "task": run.config.task,
        "dataset": run.config.data.dataset,
        "split": evaluation.split if evaluation else None,
        "n": evaluation.n or None if evaluation else None,
        "metric": metric.name,
        "value": value,
        "ci95": interval,
        "parameters": run.n_parameters,
        "steps": run.steps or None,
        "seconds": run.seconds,
        "valid": {run.metric.name: (best.valid or {}).get(run.metric.name)} if best else None,
    }


def _paired(first: RunFacts, second: RunFacts, answers: Sequence[Answers | None]) -> dict[str, Any] | str:
    """Return the paired test of two runs, or the reason why there is none."""
    if first.config.task != second.config.task:
        return f"one is {first.config.task}, the other {second.config.task}."
    if first.telling.compared is None:
        return f"there is no paired test of a {first.telling.what}."
    of_first, of_second = answers
    if of_first is None or of_second is None:
        where = " or ".join(str(run.path) for run, of in zip((first, second), answers, strict=True) if not of)
        name = RunFolder(first.path).predictions.name
        return f"no {name} in {where}, which `glassformer train --resume` would finish."
    (truth, one), (others, two) = of_first, of_second
    if truth != others or not truth:
        return "they were not evaluated on the same examples."
    return first.telling.paired_test(one, two, truth, first.score.metric.name)

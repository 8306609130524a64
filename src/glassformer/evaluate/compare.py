"""Runs side by side: one row each, and for pairs with stored predictions, whether they really differ.

Two intervals that overlap do not prove two models equal; on the same examples a paired test sees more. It
needs `predictions.jsonl` in both run folders, which `evaluate` writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.evaluate.intervals import mcnemar, paired_share_interval
from glassformer.runs.facts import RunFacts, headline, load_facts

PREDICTIONS = "predictions.jsonl"
"""One JSON object an example, in test order."""

COLUMNS = {"classify": ("truth", "label"), "translate": ("reference", "translation")}
"""Which of its fields hold what was right and what was predicted, by task."""


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
    """Put runs side by side.

    Args:
        paths: run folders; the order is kept.

    Raises:
        CheckpointError: one of them is not a run folder or has a damaged file.
    """
    runs = [load_facts(Path(path)) for path in paths]
    comparison = Comparison(rows=[_row(run) for run in runs])
    predictions = [load_predictions(run) for run in runs]
    for i, j in combinations(range(len(runs)), 2):
        outcome = _paired(runs[i], runs[j], predictions[i], predictions[j])
        if isinstance(outcome, str):
            comparison.notes.append(f"{runs[i].path} and {runs[j].path} were not tested: {outcome}")
        else:
            comparison.tests.append({"first": str(runs[i].path), "second": str(runs[j].path), **outcome})
    return comparison


def load_predictions(run: RunFacts) -> tuple[list[str], list[str]] | None:
    """Read (references, predictions) of a run; None when it stored none or its task has no pairs.

    Raises:
        CheckpointError: a line that does not hold both.
    """
    path = run.path / PREDICTIONS
    if run.task not in COLUMNS or not path.is_file():
        return None
    right, predicted = COLUMNS[run.task]
    references, predictions = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            references.append(str(row[right]).strip())
            predictions.append(str(row[predicted]).strip())
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path}:{number} is not an object with {right} and {predicted}."
            ) from error
    return references, predictions


def _row(run: RunFacts) -> dict[str, Any]:
    """Return a run's line of the table; what is unknown is None."""
    evaluation = run.evaluation or {}
    metric, value, interval = headline(run.task, evaluation)
    best = run.best_validation()
    return {
        "run": str(run.path),
        "name": run.name,
        "task": run.task,
        "dataset": run.config.get("data", {}).get("dataset"),
        "split": evaluation.get("split"),
        "n": evaluation.get("n"),
        "metric": metric,
        "value": value,
        "ci95": interval,
        "parameters": run.n_parameters,
        "steps": run.training[-1]["step"] if run.training else None,
        "seconds": run.seconds,
        "valid": {run.metric: best["valid"][run.metric]} if best else None,
    }


def _paired(
    first: RunFacts,
    second: RunFacts,
    of_first: tuple[list[str], list[str]] | None,
    of_second: tuple[list[str], list[str]] | None,
) -> dict[str, Any] | str:
    """Return the paired test of two runs, or the reason why there is none."""
    if first.task != second.task:
        return f"one is {first.task}, the other {second.task}."
    if first.task == "lm":
        return "paired tests exist for classify and translate."
    if of_first is None or of_second is None:
        missing = [str(run.path) for run, p in ((first, of_first), (second, of_second)) if p is None]
        return f"no {PREDICTIONS} in {' or '.join(missing)} (run `glassformer evaluate`)."
    (references, one), (others, two) = of_first, of_second
    if references != others or not references:
        return "they were not evaluated on the same examples."
    metric = headline(first.task, first.evaluation or {})[0]
    if metric == "bleu":
        from glassformer.evaluate.translation import paired_bootstrap

        return paired_bootstrap(one, two, references)
    only_first = sum(a == r != b for a, b, r in zip(one, two, references, strict=True))
    only_second = sum(b == r != a for a, b, r in zip(one, two, references, strict=True))
    n = len(references)
    return {
        "test": "McNemar, exact",
        "metric": metric,
        "difference": (only_first - only_second) / n,
        "ci95": paired_share_interval(only_first, only_second, n),
        "p_value": mcnemar(only_first, only_second),
        "n": n,
    }

"""Scores on stdout: one JSON object for programs, two columns for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from glassformer.runs.records import Evaluation
from glassformer.utils import console
from glassformer.utils.formatting import counted

TOO_LONG = ("examples", "predictions", "confusion", "bins", "reliability")
"""What a terminal has no use for; the report and the run folder have it."""


def write_scores(scores: Mapping[str, Any], as_json: bool) -> None:
    """Print all scores of an evaluation; single predictions stay in the run's `predictions.jsonl`."""
    if as_json:
        console.write_json({k: v for k, v in scores.items() if k not in ("examples", "predictions")})
    else:
        console.write_table(("score", "value"), list(_rows(scores)))


def headline_of(evaluation: Evaluation) -> str:
    """Return the headline score in words: `exact match 0.9880 (95% interval 0.9822 to 0.9919)`."""
    from glassformer.tasks import task_class

    metric, value, interval = task_class(evaluation.task).report.score(evaluation)
    between = f" (95% interval {_plain(interval)})" if interval else ""
    quoted = f"{metric.name.replace('_', ' ')} {_plain(value)}{between}"
    return f"{quoted} on {counted(evaluation.n, f'{evaluation.split} examples')}"


def _rows(scores: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested scores as one line each, such as `baselines.majority.accuracy`."""
    for name, value in scores.items():
        nested = isinstance(value, list) and any(isinstance(item, list | dict) for item in value)
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{name}.")
        elif name not in TOO_LONG and not nested:
            yield f"{prefix}{name}", _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list):
        interval = len(value) == 2 and not isinstance(value[0], str)
        return (" to " if interval else ", ").join(map(_plain, value))
    return str(value)

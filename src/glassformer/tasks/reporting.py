"""How runs of a task are reported, as data: what the report, the model card, the plots and the commands need.

A task that says little still gets a true report, since every field has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from glassformer.errors import UsageError
from glassformer.evaluate.metrics import METRICS, Metric, metric
from glassformer.evaluate.scoring import Predictions, Scoring, share
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.utils.formatting import Number, number, table

SHARES = "accuracy", "exact_match"
"""Scores that are shares of right answers."""


class Score(NamedTuple):
    """A metric, its value (None where there is none), and its 95% interval where there is one."""

    metric: Metric
    value: Number | None
    interval: list[Number] | None

    @property
    def text(self) -> str:
        return "" if self.value is None else self.metric.write(self.value)


def answer_text(value: object) -> str:
    """Return a stored answer as text that equals another's where the answers do; of several labels one a line."""
    return "\n".join(sorted(map(str, value))) if isinstance(value, list) else str(value).strip()


def plain_table(examples: Sequence[JsonObject]) -> str:
    """Return what is plain in examples as a table in Markdown, names of several labels one after another in a cell."""
    names = [key for key, value in examples[0].items() if isinstance(value, list) and {*map(type, value)} <= {str}]
    keys = [key for key, value in examples[0].items() if key in names or isinstance(value, str | int | float)]
    write = {list: "; ".join, float: number}
    rows = [[write.get(type(row.get(key)), str)(row.get(key, "")) for key in keys] for row in examples]
    return table(keys, rows, left=len(keys))


@dataclass(frozen=True)
class TaskReport:
    """Texts and plots for a task's runs. Text is Markdown where it goes into a report.

    Attributes:
        model_name: what a model is, after "a".
        unit: what an evaluation's `n` counts.
        loss_unit: unit of the training loss.
        metrics: metrics of this task, in addition to the common ones.
        table_metrics: scores of the result table, the headline first; every known one if empty.
        baselines: titles of the baselines.
        limits: limits of the models.
        guesses_evenly: whether an untrained model gives all answers about the same probability, so that its loss is the
            logarithm of their number.
        comparison_keys: keys of a stored prediction that hold target and prediction; None if runs are not compared
            example by example.
        details: what follows the result table, such as how answers were decoded, or a table of classes.
        plots: pictures of an evaluation: a function that returns PNG bytes, or None where there is nothing to draw, and
            its caption, by the name of the file.
        example_table: examples as Markdown.
        scored: what the headline of an evaluation is computed from; None for the share of right answers.
    """

    model_name: str = "model"
    unit: str = "examples"
    loss_unit: str = "nats per label"
    metrics: tuple[Metric, ...] = ()
    table_metrics: tuple[str, ...] = ()
    baselines: Mapping[str, str] = field(default_factory=dict)
    limits: str = "It was tested on data like its training data; elsewhere it may do worse."
    guesses_evenly: bool = True
    comparison_keys: tuple[str, str] | None = None
    details: Callable[[Evaluation], list[str]] = lambda evaluation: []
    plots: Mapping[str, tuple[Callable[[Evaluation], bytes | None], str]] = field(default_factory=dict)
    example_table: Callable[[Sequence[JsonObject]], str] = plain_table
    scored: Callable[[JsonObject], Scoring | None] | None = None

    @property
    def headline(self) -> str:
        """Return the name of the headline score, where an evaluation names no other; "" for its first one."""
        return next(iter([*self.table_metrics, *(metric.name for metric in self.metrics)]), "")

    def metric(self, name: str) -> Metric:
        return metric(name, self.metrics)

    def score(self, evaluation: Evaluation, name: str | None = None) -> Score:
        """Return a score of an evaluation; without a name, the one to quote first."""
        shown = name or evaluation.headline or self.headline or next(iter(self.names(evaluation)), "loss")
        return Score(self.metric(shown), evaluation.value(shown), evaluation.interval(shown))

    def names(self, evaluation: Evaluation) -> list[str]:
        """Return the scores of the result table that an evaluation has."""
        known = self.table_metrics or [*(metric.name for metric in self.metrics), *METRICS]
        return [name for name in dict.fromkeys(known) if evaluation.value(name) is not None]

    def scoring(self, scores: JsonObject) -> Scoring:
        """Return what the headline of an evaluation is computed from."""

        def counts(predictions: Predictions) -> np.ndarray:
            pairs = ([answer_text(row[key]) for key in self.comparison_keys or ()] for row in predictions)
            return np.array([(truth == answer, 1) for truth, answer in pairs], float)

        named, metric = self.scored(scores) if self.scored else None, self.score(Evaluation(scores=scores)).metric
        if named is None and metric.name not in SHARES:
            raise UsageError(f"what {metric.title} counts is not known", "name it in the report of the task: `scored`")
        return named or Scoring(metric.name, counts, share)

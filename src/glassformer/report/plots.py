"""The plots every run has, of its loss and of its validation metric; `draw_all` draws its task's too.

Each function takes a run's record and returns PNG bytes, or None where there is nothing to draw. How they look
is in `utils/plotting.py`; writing them to disk is `write.py`'s work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glassformer.evaluate.metrics import Metric
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import StepMetrics
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import number

CURVE: Any = {"color": ps.ACCENT, "linewidth": 1.6, "marker": "o", "markersize": 3.4, "clip_on": False}


def draw_all(facts: RunRecord) -> dict[str, bytes]:
    """Draw every plot a run has numbers for, by file name without suffix."""
    with ps.style():
        drawn = {"loss": loss(facts), "metric": metric(facts)}
        of_scores = facts.task_report.drawn(facts.evaluation) if facts.evaluation else {}
    return {name: image for name, image in drawn.items() if image is not None} | of_scores


def loss(facts: RunRecord) -> bytes | None:
    """Draw the loss of each step, its mean over 1/25 of the run, and that of validations; mark the weights kept."""
    steps, losses = _series(facts.training, lambda row: row.loss)
    if len(steps) < 2:
        return None
    subtitle = f"Cross-entropy, {facts.task_report.loss_unit}; lower is better"
    figure, (axes,) = ps.new_figure(3.7, "Loss", subtitle, right=1.35)
    n = 1 + len(losses) // 25
    means = np.convolve(losses, np.ones(n) / n, "valid")
    axes.plot(steps, losses, color=ps.SOFT, linewidth=0.7, alpha=0.7)
    axes.plot(steps[n - 1 :], means, color=ps.INK, linewidth=1.3)
    if best := facts.best_validation():
        axes.axvline(best.step, color=ps.ACCENT, linewidth=0.8, linestyle=(0, (1, 2.5)))
    label = (steps[-1], means[-1], f"training {number(means[-1])}", ps.INK)
    return _with_validations(figure, axes, facts, facts.task_report.metric("loss"), [label])


def metric(facts: RunRecord) -> bytes | None:
    """Draw the validation metric over training."""
    metric = facts.metric
    if metric.name == "loss" or not any(row.valid for row in facts.validations):
        return None
    figure, (axes,) = ps.new_figure(3.7, metric.title, metric.unit, right=1.45)
    axes.yaxis.set_major_formatter(lambda value, _: metric.write(value))
    return _with_validations(figure, axes, facts, metric, [])


def _with_validations(figure: Any, axes: Any, facts: RunRecord, metric: Metric, labels: list[Any]) -> bytes:
    """Draw a metric of the validations too, and return the picture, with labels at the ends of its curves."""
    steps, values = _series(facts.validations, lambda row: (row.valid or {}).get(metric.name))
    if len(steps):
        axes.plot(steps, values, **CURVE)
        labels = [*labels, (steps[-1], values[-1], f"validation {metric.write(values[-1])}", ps.ACCENT)]
    axes.set_xlim(left=0)
    axes.set_ylim(axes.get_ylim())  # the labels need the final limits
    axes.set_xlabel("optimizer steps")
    ps.thousands(axes.xaxis)
    ps.end_labels(axes, labels)
    return ps.png(figure)


def _series(rows: list[StepMetrics], value: Callable[[StepMetrics], float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which there is a finite value, and the values."""
    steps = np.array([row.step for row in rows], dtype=float)
    values = np.array([value(row) for row in rows], dtype=float)  # None becomes NaN
    there = np.isfinite(values)
    return steps[there], values[there]

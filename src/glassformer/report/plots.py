"""The plots every run has, of its loss and of its validation metric; `draw_all` draws its task's too.

How they look is in `utils/plotting.py`; writing them to disk is `write.py`'s work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glassformer.report.run_record import RunRecord
from glassformer.runs.records import Evaluation, StepMetrics
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import number

CURVE: Any = {"color": ps.ACCENT, "linewidth": 1.6, "marker": "o", "markersize": 3.4, "clip_on": False}


def draw_all(facts: RunRecord) -> dict[str, bytes]:
    """Draw every plot a run has numbers for: PNG bytes by file name without suffix."""
    metric = facts.metric
    with ps.style():
        plots = facts.task_report.plots if facts.evaluation else {}
        drawn = {name: image for name, (draw, _) in plots.items() if (image := draw(facts.evaluation or Evaluation()))}
        if len(facts.training) > 1:
            drawn["loss"] = curve(facts, "loss", "Loss", "In training and on validation; lower is better")
        if metric.name != "loss" and any(row.valid for row in facts.validations):
            drawn["metric"] = curve(facts, metric.name, metric.title, metric.unit)
    return drawn


def curve(facts: RunRecord, name: str, title: str, subtitle: str) -> bytes:
    """Draw a metric of the validations over training, and mark the weights kept.

    Of the loss also that of each step, and its mean over 1/25 of the run.
    """
    figure, (axes,) = ps.new_figure(3.7, title, subtitle, right=1.45)
    write, labels = facts.task_report.metric(name).write, list[Any]()
    axes.yaxis.set_major_formatter(lambda value, _: write(value))
    steps, losses = _series(facts.training, lambda row: row.loss)
    if name == "loss" and len(steps) > 1:
        n = 1 + len(losses) // 25
        means = np.convolve(losses, np.ones(n) / n, "valid")
        axes.plot(steps, losses, color=ps.SOFT, linewidth=0.7, alpha=0.7)
        axes.plot(steps[n - 1 :], means, color=ps.INK, linewidth=1.3)
        labels.append((steps[-1], means[-1], f"training {number(means[-1])}", ps.INK))
    if best := facts.best_validation():
        axes.axvline(best.step, color=ps.ACCENT, linewidth=0.8, linestyle=(0, (1, 2.5)))
    steps, values = _series(facts.validations, lambda row: (row.valid or {}).get(name))
    if len(steps):
        axes.plot(steps, values, **CURVE)
        labels.append((steps[-1], values[-1], f"validation {write(values[-1])}", ps.ACCENT))
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

"""The plots every run has, of its loss and of its validation metric; `draw_all` draws its task's too.

Each function takes a run's record and returns PNG bytes, or None where there is nothing to draw. How they look
is in `utils/plotting.py`; writing them to disk is `write.py`'s work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glassformer.report.run_record import RunRecord
from glassformer.runs.records import StepMetrics
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import Number, number

CURVE: Any = {"color": ps.ACCENT, "linewidth": 1.6, "marker": "o", "markersize": 3.4, "clip_on": False}
SMALLEST_LOSS = 1e-6
"""Losses below it, in nats, are drawn there, since a logarithmic axis has no zero."""


def draw_all(facts: RunRecord) -> dict[str, bytes]:
    """Draw every plot a run has numbers for, by file name without suffix."""
    with ps.style():
        drawn = {"loss": loss(facts), "metric": metric(facts)}
        of_scores = facts.task_report.drawn(facts.evaluation) if facts.evaluation else {}
    return {name: image for name, image in drawn.items() if image is not None} | of_scores


def loss(facts: RunRecord) -> bytes | None:
    """Draw the loss of each step, its mean over 1/25 of the run, and that of validations; mark the weights kept."""
    steps, losses = _series(facts.training, lambda row: row.loss)
    valid_steps, valid_losses = _series(facts.validations, lambda row: (row.valid or {}).get("loss"))
    if len(steps) < 2:
        return None
    subtitle = f"Cross-entropy, {facts.task_report.loss_unit}; lower is better"
    figure, (axes,) = ps.new_figure(3.7, "Loss", subtitle, right=1.35)
    n = 1 + len(losses) // 25
    means = np.convolve(losses, np.ones(n) / n, "valid").clip(min=SMALLEST_LOSS)
    axes.plot(steps, losses.clip(min=SMALLEST_LOSS), color=ps.SOFT, linewidth=0.7, alpha=0.7)
    axes.plot(steps[n - 1 :], means, color=ps.INK, linewidth=1.3)
    labels = [(steps[-1], means[-1], f"training {number(means[-1])}", ps.INK)]
    if len(valid_steps):
        axes.plot(valid_steps, valid_losses.clip(min=SMALLEST_LOSS), **CURVE)
        label = f"validation {number(valid_losses[-1])}"
        labels.append((valid_steps[-1], max(valid_losses[-1], SMALLEST_LOSS), label, ps.ACCENT))
    if best := facts.best_validation():
        axes.axvline(best.step, color=ps.ACCENT, linewidth=0.8, linestyle=(0, (1, 2.5)))
    low, high = axes.get_ylim()
    axes.set_yscale("log", subs=[2, 5] if high < 300 * low else [])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    return _drawn(figure, axes, labels)


def metric(facts: RunRecord) -> bytes | None:
    """Draw the validation metric over training, and the score of the evaluation with its interval at the end."""
    metric, evaluation = facts.metric, facts.evaluation
    steps, values = _series(facts.validations, lambda row: (row.valid or {}).get(metric.name))
    if not len(steps) or metric.name == "loss":
        return None
    figure, (axes,) = ps.new_figure(3.7, metric.title, metric.unit, right=1.45)
    axes.plot(steps, values, **CURVE)
    labels = [(steps[-1], values[-1], f"validation {metric.write(values[-1])}", ps.ACCENT)]
    if evaluation and (scored := facts.task_report.score(evaluation, metric.name)).value is not None:
        end = 1.035 * max(float(steps[-1]), facts.steps)  # just outside: it is no point of the curve
        axes.plot([end, end], scored.interval or [scored.value] * 2, color=ps.INK, linewidth=1.3, clip_on=False)
        axes.plot([end], [scored.value], color=ps.INK, marker="D", markersize=4.2, clip_on=False)
        labels.append((end, scored.value, f"{evaluation.split} {scored.text}", ps.INK))
    axes.yaxis.set_major_formatter(lambda value, _: metric.write(value))
    return _drawn(figure, axes, labels)


def _series(rows: list[StepMetrics], value: Callable[[StepMetrics], float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which there is a finite value, and the values."""
    steps = np.array([row.step for row in rows], dtype=float)
    values = np.array([value(row) for row in rows], dtype=float)  # None becomes NaN
    there = np.isfinite(values)
    return steps[there], values[there]


def _drawn(figure: Any, axes: Any, labels: Sequence[tuple[Number, Number, str, str]]) -> bytes:
    """Return the picture of curves over the steps of a training, with labels at their ends."""
    axes.set_xlim(left=0)
    axes.set_ylim(axes.get_ylim())
    axes.set_xlabel("optimizer steps")
    ps.thousands(axes.xaxis)
    ps.end_labels(axes, labels)
    return ps.png(figure)

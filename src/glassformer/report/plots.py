"""The plots every run has: its curves of training and the lengths of its texts; `draw_all` draws its task's too.

Each function takes a run's facts and returns PNG bytes, or None where there is nothing to draw. How they look
is in `utils/plotting.py`; writing them to disk is `write.py`'s work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glassformer.report.run_record import RunRecord
from glassformer.runs.records import Evaluation, StepMetrics
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import Number, number, percent

CURVE: Any = {"color": ps.ACCENT, "linewidth": 1.6, "marker": "o", "markersize": 3.4, "clip_on": False}
SMALLEST_LOSS = 1e-6
"""Losses below it, in nats, are drawn there, since a logarithmic axis has no zero."""
DASHED: Any = {"color": ps.QUIET, "linewidth": 0.9, "linestyle": (0, (4, 3))}


def draw_all(facts: RunRecord) -> dict[str, bytes]:
    """Draw every plot a run has numbers for, by file name without suffix."""
    with ps.style():
        drawn = {draw.__name__: draw(facts) for draw in (loss, metric, learning_rate, lengths)}
        of_scores = facts.task_report.drawn(facts.evaluation) if facts.evaluation else {}
    return {name: image for name, image in drawn.items() if image is not None} | of_scores


def loss(facts: RunRecord) -> bytes | None:
    """Draw training loss, raw and smoothed, and validation loss, on a logarithmic axis, and mark the weights kept."""
    steps, losses = _series(facts.training, lambda row: row.loss)
    valid_steps, valid_losses = _series(facts.validations, lambda row: (row.valid or {}).get("loss"))
    if len(steps) < 2 and len(valid_steps) < 2:
        return None
    subtitle = f"Cross-entropy, {facts.task_report.loss_unit}; lower is better"
    figure, (axes,) = ps.new_figure(3.7, "Loss", subtitle, right=1.35)
    labels: list[tuple[Number, Number, str, str]] = []
    if len(steps) >= 2:
        smooth = _smoothed(losses)
        axes.plot(steps, losses.clip(min=SMALLEST_LOSS), color=ps.SOFT, linewidth=0.7, alpha=0.7)
        axes.plot(steps, smooth, color=ps.INK, linewidth=1.3)
        labels.append((steps[-1], smooth[-1], f"training {number(smooth[-1])}", ps.INK))
    if len(valid_steps):
        axes.plot(valid_steps, valid_losses, **CURVE)
        label = f"validation {number(valid_losses[-1])}"
        labels.append((valid_steps[-1], valid_losses[-1], label, ps.ACCENT))
    shown = np.concatenate([losses[len(losses) // 100 :], valid_losses]).clip(min=SMALLEST_LOSS)
    ratio = (high := float(np.percentile(shown, 99.7))) / (low := float(shown.min()))
    _log_y(axes, low, high)
    axes.set_ylim(low / (1.01 * ratio**0.06), high * (1.01 * ratio**0.08))
    _x_of_updates(axes, max([*steps[-1:], *valid_steps[-1:]]))
    if len(facts.validations) > 1 and (best := facts.best_validation()):
        axes.axvline(best.step, color=ps.ACCENT, linewidth=0.8, linestyle=(0, (1, 2.5)))
        axes.annotate(
            "kept",
            (best.step, 0.985),
            (-4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right",
            va="top",
            color=ps.ACCENT,
            fontsize=10,
        )
    ps.end_labels(axes, labels)
    return ps.png(figure)


def metric(facts: RunRecord) -> bytes | None:
    """Draw the validation metric over training, the test score beside it, and baselines that are near."""
    metric = facts.metric
    steps, values = _series(facts.validations, lambda row: (row.valid or {}).get(metric.name))
    if not len(steps) or metric.name == "loss":
        return None
    subtitle = f"On the validation split; {metric.unit}" if metric.unit else "On validation"
    figure, (axes,) = ps.new_figure(3.7, metric.title, subtitle, right=1.45)
    axes.plot(steps, values, **CURVE)
    last = max(float(steps[-1]), facts.steps)
    edge = last * 1.035  # the test score stands just outside: it is no point of the curve
    labels, seen = [(edge, values[-1], f"validation {metric.write(values[-1])}", ps.ACCENT)], list(values)
    _, test, interval = facts.task_report.score(facts.evaluation or Evaluation(), metric.name)
    if test is not None and facts.evaluation and facts.evaluation.split == "test":
        spread = interval or [test, test]
        axes.plot([edge, edge], spread, color=ps.INK, linewidth=1.3, clip_on=False)
        axes.plot([edge], [test], color=ps.INK, marker="D", markersize=4.2, clip_on=False)
        labels.append((edge, test, f"test {metric.write(test)}", ps.INK))
        seen += [test, *spread]
    _metric_axes(axes, facts, seen)
    _x_of_updates(axes, last)
    ps.end_labels(axes, labels)
    return ps.png(figure)


def _metric_axes(axes: Any, facts: RunRecord, seen: Sequence[Number]) -> None:
    """Set the limits so that what is `seen` is in sight, and draw the baselines that are not far from it."""
    metric, low, high = facts.metric, min(seen), max(seen)
    reach = max(high - low, 0.02 * abs(high), 1e-9)
    baselines = facts.evaluation.baselines.items() if facts.evaluation else ()
    scored = [(facts.task_report.baselines.get(key, key), row.get(metric.name)) for key, row in baselines]
    near = [(name, v) for name, v in scored if v is not None and low - reach < v < high + reach]
    low, high = min([low, *(v for _, v in near)]), max([high, *(v for _, v in near)])
    below = low - 0.1 * (high - low) - 1e-9
    axes.set_ylim(max(0.0, below) if low >= 0 else below, high + 0.14 * (high - low) + 1e-9)
    if metric.write(0.5).endswith("%"):
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    for name, value in near:
        axes.axhline(value, **DASHED)
        ps.note(axes, (0, value), f"{name} {metric.write(value)}")


def learning_rate(facts: RunRecord) -> bytes | None:
    """Draw the learning rate, and the gradient norm beside the length it is clipped to."""
    steps, rates = _series(facts.training, lambda row: row.lr)
    if len(steps) < 2:
        return None
    norm_steps, norms = _series(facts.training, lambda row: row.grad_norm)
    with_norms = len(norm_steps) >= 2 and float(norms.max()) > 0
    height, title = (4.4, "Learning rate and gradient norm") if with_norms else (3.0, "Learning rate")
    subtitle = f"For each step; the rate peaks at {rates.max():.3g}"
    figure, panels = ps.new_figure(height, title, subtitle, right=1.35, rows=(1, 1) if with_norms else (1,))
    figure.subplots_adjust(hspace=0.3)
    panels[0].plot(steps, rates, color=ps.ACCENT, linewidth=1.6, clip_on=False)
    panels[0].set_ylim(0, float(rates.max()) * 1.12 + 1e-12)
    panels[0].yaxis.set_major_formatter("{x:g}")
    _x_of_updates(panels[-1], float(steps[-1]))
    ps.end_labels(panels[0], [(steps[-1], rates[-1], "learning rate", ps.ACCENT)])
    if with_norms:
        _gradient_norm(panels[1], norm_steps, norms, facts.config.train.max_grad_norm)
    return ps.png(figure)


def _gradient_norm(axes: Any, steps: np.ndarray, norms: np.ndarray, max_norm: float) -> None:
    """Draw gradient norms on a logarithmic axis, and the length they are clipped to if it is in sight."""
    positive = np.maximum(norms, float(norms[norms > 0].min()))
    smooth = np.exp(_smoothed(np.log(positive)))
    axes.plot(steps, positive, color=ps.SOFT, linewidth=0.7)
    axes.plot(steps, smooth, color=ps.INK, linewidth=1.3)
    _log_y(axes, positive.min(), positive.max())
    labels = [(steps[-1], smooth[-1], "gradient norm", ps.INK)]
    if max_norm and positive.min() <= max_norm <= positive.max():
        axes.axhline(max_norm, **DASHED)
        labels.append((steps[-1], max_norm, f"clipped at {max_norm:g}", ps.QUIET))
    ps.end_labels(axes, labels, gap=0.17)


def _log_y(axes: Any, low: float, high: float) -> None:
    """Make the y-axis logarithmic, with ticks at 1, 2 and 5, or of a wide range at powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 300 * low else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def lengths(facts: RunRecord) -> bytes | None:
    """Draw how long the training texts are, and where they are cut."""
    train = facts.data.train
    edges, counts = (np.asarray((train.lengths or {}).get(key, []), float) for key in ("edges", "counts"))
    if len(counts) < 2 or len(edges) != len(counts) + 1 or counts.sum() < 2 or not np.isfinite(edges).all():
        return None
    subtitle = f"Share of {facts.task_report.inputs_name} by tokens, as the model sees them"
    figure, (axes,) = ps.new_figure(3.3, "Length of texts", subtitle)
    shares = counts / counts.sum()
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=ps.SOFT, ec=ps.PAPER, lw=0.6)
    axes.set_xlim(0 if edges[0] < 0.3 * edges[-1] else edges[0], edges[-1])
    axes.set_ylim(0, float(shares.max()) * 1.2)  # room for the words about the limit
    axes.set_xlabel("tokens")
    ps.thousands(axes.xaxis)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    limit = facts.config.text.max_len
    if edges[0] < limit <= edges[-1]:
        cut = ((train.n_truncated or 0) + (train.n_dropped or 0)) / max(train.n, 1)
        axes.axvline(limit, color=ps.ACCENT, linewidth=1.3)
        left = limit > 0.7 * edges[-1]
        axes.annotate(
            f"limit {limit:,}; {percent(cut)} were longer",
            (limit, 0.95),
            (-6 if left else 6, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=ps.ACCENT,
            ha="right" if left else "left",
            va="center",
        )
    return ps.png(figure)


def _series(rows: list[StepMetrics], value: Callable[[StepMetrics], float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which there is a finite value, and the values."""
    steps = np.array([row.step for row in rows], dtype=float)
    values = np.array([value(row) for row in rows], dtype=float)  # None becomes NaN
    there = np.isfinite(values)
    return steps[there], values[there]


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Fit a straight line through 1/25 of the run to either side of each point, and take its value there.

    A plain moving average lags behind a slope at both ends, where a curve is looked at most.
    """
    n, half = len(values), max(2, len(values) // 25)
    x, at = np.arange(n, dtype=float), np.arange(n)
    low, high = np.maximum(0, at - half), np.minimum(n, at + half + 1)
    sums = np.cumsum(np.pad([x, values, x * values, x * x], ((0, 0), (1, 0))), axis=1)
    mean_x, mean_y, mean_xy, mean_xx = (sums[:, high] - sums[:, low]) / (high - low)
    slope = (mean_xy - mean_x * mean_y) / np.maximum(mean_xx - mean_x**2, 1e-12)
    return mean_y + slope * (x - mean_x)


def _x_of_updates(axes: Any, last: Number) -> None:
    axes.set_xlim(0, last * 1.001 + 1e-9)
    axes.set_xlabel("optimizer steps")
    ps.thousands(axes.xaxis)

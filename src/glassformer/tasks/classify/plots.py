"""Pictures of a classifier's scores: what it confuses, and whether its confidence is earned.

Each function takes an evaluation and returns PNG bytes, or None where it holds nothing to draw. The look is in
`utils/plotting.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glassformer.evaluate.intervals import wilson_interval
from glassformer.runs.records import Evaluation
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import percent

MAX_CLASSES_WITH_NUMBERS = 12
"""A confusion matrix of more classes shows colours only."""
MAX_CLASSES = 60
"""Beyond this a confusion matrix is no picture any more."""


def confusion_matrix(evaluation: Evaluation) -> bytes | None:
    """Draw what was taken for what, each row coloured by its own shares."""
    counts = np.asarray(evaluation.scores.get("confusion") or [], dtype=float)
    n = len(counts)
    if counts.ndim != 2 or not 2 <= n <= MAX_CLASSES:
        return None
    names = [str(name) for name in evaluation.scores.get("label_names") or range(n)]
    names = [name if len(name) <= 18 else name[:17] + "…" for name in names]
    longest = max(map(len, names))
    side = 1.15 * n if n <= 4 else min(0.62 * n, 6.5)
    margin = 0.55 + 0.085 * longest
    turned = 45 if longest * n > 9 * side else 0
    below = 0.35 + (0.06 * longest if turned else 0)
    subtitle, wide = "Rows: true class; columns: predicted", max(side + margin + 0.3, 3.9)
    figure, (axes,) = ps.new_figure(side + 0.9 + below, "Confusion", subtitle, width=wide)
    width, height = figure.get_size_inches()
    axes.set_position((margin / width, below / height, side / width, side / height))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("paper-accent", [ps.PAPER, "#e7b9a8", ps.ACCENT])
    axes.imshow(shares, cmap=colours, vmin=0, vmax=1, aspect="equal")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    # A little over half of a row, in points.
    label: Any = {"fontsize": min(10.0, 0.55 * 72 * side / n), "parse_math": False, "color": ps.INK}
    axes.set_xticks(np.arange(n), names, rotation=turned, ha="right" if turned else "center", **label)
    axes.set_yticks(np.arange(n), names, **label)
    axes.tick_params(length=0)
    if n <= MAX_CLASSES_WITH_NUMBERS:
        for (row, column), share in np.ndenumerate(shares):
            text = f"{counts[row, column]:,.0f}" + (f"\n{100 * share:.1f}%" if n <= 4 else "")
            colour = ps.PAPER if share > 0.6 else ps.INK
            axes.text(column, row, text, ha="center", va="center", linespacing=1.5, color=colour)
    return ps.png(figure)


def reliability(evaluation: Evaluation) -> bytes | None:
    """Draw accuracy against confidence, with Wilson intervals, over the shares of examples."""
    bins = evaluation.scores.get("calibration") or []
    if not bins:
        return None
    title = f"Is its confidence earned?  Mean gap {percent(evaluation.scores['ece'])}"
    subtitle = "Share right by confidence; below the dashed line it is too sure"
    figure, (axes, shares) = ps.new_figure(4.7, title, subtitle, width=5.0, rows=(4, 1))
    figure.subplots_adjust(hspace=0.14)
    n_classes = max(2, len(evaluation.scores.get("label_names") or []))
    low = math.floor(10 / n_classes + 1e-9) / 10  # below 1/C no class is chosen
    axes.plot([low, 1], [low, 1], color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    confidence, accuracy = (np.array([b[key] for b in bins]) for key in ("confidence", "accuracy"))
    for b in bins:
        interval = wilson_interval(round(b["accuracy"] * b["n"]), b["n"])
        axes.plot([b["confidence"]] * 2, interval, color=ps.ACCENT, linewidth=1.0, alpha=0.55)
    axes.plot(confidence, accuracy, color=ps.ACCENT, linewidth=1.4, marker="o", markersize=4.2, clip_on=False)
    axes.set_xlim(low, 1.0)
    axes.set_ylim(max(0.0, min(low, float(accuracy.min()) - 0.04)), 1.01)
    total = sum(b["n"] for b in bins)
    for b in bins:
        width = b["high"] - b["low"]
        shares.bar(b["low"], b["n"] / total, width, align="edge", color=ps.SOFT, edgecolor=ps.PAPER)
    shares.set_xlabel("confidence in the predicted class")
    tallest = max(b["n"] for b in bins) / total
    shares.set_ylim(0, 1.6 * tallest)  # room for the words above the bars
    ps.note(shares, (low, 1.6 * tallest), "share of examples", offset=(4, -8))
    for axis in (axes.yaxis, shares.yaxis, shares.xaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    shares.locator_params(axis="y", nbins=2)
    return ps.png(figure)

"""Pictures of test scores: what a classifier confuses, whether its confidence is earned, BLEU by length.

Each function takes a run's facts and returns PNG bytes, or None where the evaluation holds nothing to draw.
The curves of training are in `plots.py`, the look of all of them in `style/plots.py`.
"""

from __future__ import annotations

import math

import numpy as np

from glassformer.evaluate.intervals import wilson_interval
from glassformer.runs.facts import RunFacts
from glassformer.style import plots as ps
from glassformer.style.words import percent

MAX_CLASSES_WITH_NUMBERS = 12
"""A confusion matrix of more classes shows colours only."""

MAX_CLASSES = 60
"""Beyond this a confusion matrix is no picture any more."""


def confusion_matrix(facts: RunFacts) -> bytes | None:
    """Draw what was taken for what, each row coloured by its own shares."""
    table = np.asarray((facts.evaluation or {}).get("confusion") or [], dtype=float)
    if table.ndim != 2 or not 2 <= len(table) <= MAX_CLASSES:
        return None
    names = [_short(str(name)) for name in (facts.evaluation or {}).get("label_names", range(len(table)))]
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    from matplotlib.colors import LinearSegmentedColormap

    side = 1.15 * len(table) if len(table) <= 4 else min(0.62 * len(table), 6.5)
    margin = 0.55 + 0.085 * max(map(len, names))
    turned = 45 if max(map(len, names)) * len(names) > 9 * side else 0
    below = 0.35 + (0.06 * max(map(len, names)) if turned else 0)
    figure, (axes,) = ps.new_figure(
        side + 0.9 + below,
        "Confusion",
        "Rows: true class; columns: predicted",
        width=max(side + margin + 0.3, 3.9),
    )
    width, height = figure.get_size_inches()
    axes.set_position((margin / width, below / height, side / width, side / height))
    colours = LinearSegmentedColormap.from_list("paper-accent", [ps.PAPER, "#e7b9a8", ps.ACCENT])
    axes.imshow(shares, cmap=colours, vmin=0, vmax=1, aspect="equal")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    ticks = np.arange(len(table))
    size = min(10.0, 0.55 * 72 * side / len(table))  # a little over half of a row, in points
    axes.set_xticks(
        ticks,
        names,
        rotation=turned,
        ha="right" if turned else "center",
        fontsize=size,
        parse_math=False,
        color=ps.INK,
    )
    axes.set_yticks(ticks, names, fontsize=size, parse_math=False, color=ps.INK)
    axes.tick_params(length=0)
    if len(table) <= MAX_CLASSES_WITH_NUMBERS:
        for (row, column), share in np.ndenumerate(shares):
            text = (
                f"{table[row, column]:,.0f}\n{100 * share:.1f}%"
                if len(table) <= 4
                else f"{table[row, column]:,.0f}"
            )
            axes.text(column, row, text, ha="center", va="center", linespacing=1.5,
                      color=ps.PAPER if share > 0.6 else ps.INK)  # fmt: skip
    return ps.png(figure)


def reliability(facts: RunFacts) -> bytes | None:
    """Draw accuracy against confidence, with Wilson intervals, over the shares of examples."""
    evaluation = facts.evaluation or {}
    bins = evaluation.get("calibration") or []
    if not bins:
        return None
    figure, (axes, shares) = ps.new_figure(
        4.7,
        f"Is its confidence earned?  Mean gap {percent(evaluation['ece'])}",
        "Share right by confidence; below the dashed line it is too sure",
        width=5.0,
        rows=(4, 1),
    )
    figure.subplots_adjust(hspace=0.14)
    low = (
        math.floor(10 / max(2, len(evaluation.get("label_names") or [])) + 1e-9) / 10
    )  # below 1/C none is chosen
    axes.plot([low, 1], [low, 1], color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    confidence = np.array([b["confidence"] for b in bins])
    accuracy = np.array([b["accuracy"] for b in bins])
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


def bleu_by_length(facts: RunFacts) -> bytes | None:
    """Draw BLEU by length of the reference."""
    rows = (facts.evaluation or {}).get("by_length") or []
    if facts.task != "translate" or len(rows) < 2:
        return None
    figure, (axes,) = ps.new_figure(
        3.3, "BLEU by length", "Test sentences by tokens of the reference, n of each"
    )
    ps.room_for_labels(figure, 0.95)
    x, bleu = np.arange(len(rows)), [row["bleu"] for row in rows]
    axes.bar(x, bleu, 0.62, color=ps.SOFT)
    for at, value in zip(x, bleu, strict=True):
        axes.annotate(f"{value:.1f}", (at, 0), (0, 6), textcoords="offset points", ha="center", color=ps.INK)
    overall = float((facts.evaluation or {})["bleu"])
    axes.axhline(overall, color=ps.ACCENT, linewidth=1.2)
    axes.set_xticks(x, [f"{row['min']}–{row['max']}\nn = {row['n']:,}" for row in rows])
    axes.tick_params(length=0)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, max([*bleu, overall, 1e-9]) * 1.08)
    ps.end_labels(axes, [(len(rows) - 0.4, overall, f"all {overall:.1f}", ps.ACCENT)])
    return ps.png(figure)


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"

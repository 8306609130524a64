"""Lay out figures of matrices: one with its tokens, all heads of a layer, positions and their similarity.

They take arrays and labels from `trace_plots.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from glassformer.explain.figures import style as fs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SIDE = 8.0
"""Maximum length of the longer side of a matrix, in inches."""

HEADER, FOOTER, MARGIN = 0.72, 0.16, 0.12
"""Inches above the drawing (title and subtitle), below it and on either side."""


def matrix_figure(
    title: str,
    subtitle: str,
    values: Float[np.ndarray, "Q K"],
    masked: Bool[np.ndarray, "Q K"] | None,
    labels: tuple[Sequence[str], Sequence[str]],
    *,
    axis_labels: tuple[str, str] = ("query", "key"),
    mark_maxima: bool = False,
) -> Figure:
    """Return a figure of one matrix of weights, with tokens beside the rows and above the columns."""
    rows, columns = labels
    n_rows, n_columns = values.shape
    cell = min(0.26, MAX_SIDE / max(n_rows, n_columns, 1))
    width, height = cell * n_columns, cell * n_rows
    probe = fs.new_figure(4, 4, "", "")
    points = fs.label_points(cell)
    left = MARGIN + 0.3 + max(fs.text_width(probe, rows, points))
    top = HEADER + 0.22 + max(fs.text_width(probe, columns, points))
    needed = 2 * MARGIN + max(fs.text_width(probe, [title], 13) + fs.text_width(probe, [subtitle], 9.5))
    figure = fs.new_figure(max(left + width + 0.75, needed), top + max(height, 1.0) + FOOTER, title, subtitle)
    axes = fs.inset(figure, left, top, width, height)
    limits = (0.0, max(float(values.max()), 1e-12))
    drawn = fs.draw_matrix(axes, values, limits=limits, masked=masked)
    fs.label_cells(axes, rows, columns, cell)
    axes.set_ylabel(axis_labels[0], color=fs.QUIET, fontsize=8.5, labelpad=4)
    axes.set_xlabel(axis_labels[1], color=fs.QUIET, fontsize=8.5, labelpad=4)
    axes.xaxis.set_label_position("top")
    if mark_maxima:
        maxima = values.argmax(axis=1)
        dark = values[np.arange(n_rows), maxima] > 0.55 * limits[1]
        for shade, colour in ((dark, fs.PAPER), (~dark, fs.INK)):
            axes.scatter(maxima[shade], np.flatnonzero(shade), s=(72 * cell * 0.22) ** 2, color=colour, linewidth=0)
    fs.scale_bar(figure, drawn, (left + width + 0.16, top, 0.09, min(max(height, 0.8), 1.6)), "weight")
    return fs.finish(figure)


def heads_figure(
    title: str,
    subtitle: str,
    weights: Float[np.ndarray, "H Q K"],
    masked: Bool[np.ndarray, "H Q K"] | None,
    labels: tuple[Sequence[str], Sequence[str]],
) -> Figure:
    """Return a figure of the heads of a layer side by side on one scale, with tokens where there is room."""
    n_heads, n_rows, n_columns = weights.shape
    across = min(n_heads, 4)
    down = math.ceil(n_heads / across)
    side = 1.55 if n_heads > 2 else 2.4
    cell = side / max(n_rows, n_columns)
    width, height = cell * n_columns, cell * n_rows
    labelled = fs.label_points(cell) >= fs.MIN_FONT_SIZE
    probe = fs.new_figure(4, 4, "", "")
    points = fs.label_points(cell)
    left = MARGIN + 0.06 + (max(fs.text_width(probe, labels[0], points)) if labelled else 0)
    above = 0.08 + (max(fs.text_width(probe, labels[1], points)) if labelled else 0)
    gap, line = 0.22, 0.24 + above
    needed = 2 * MARGIN + max(fs.text_width(probe, [title], 13) + fs.text_width(probe, [subtitle], 9.5))
    figure = fs.new_figure(
        max(left + across * (width + gap) + 0.55, needed),
        HEADER + down * (line + height + 0.1) + FOOTER,
        title,
        subtitle,
    )
    limits = (0.0, max(float(weights.max()), 1e-12))
    drawn: Any = None
    for head in range(n_heads):
        row, column = divmod(head, across)
        top = HEADER + row * (line + height + 0.1) + line
        axes = fs.inset(figure, left + column * (width + gap), top, width, height)
        drawn = fs.draw_matrix(axes, weights[head], limits=limits, masked=None if masked is None else masked[head])
        axes.set_xticks([])
        axes.set_yticks([])
        if labelled:
            fs.label_cells(axes, labels[0] if column == 0 else [""] * n_rows, labels[1], cell)
        axes.annotate(
            f"head {head + 1}",
            (0, 1),
            (0, 72 * (above + 0.02)),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=9,
            color=fs.QUIET,
        )
    box = (left + across * (width + gap) - gap + 0.14, HEADER + line, 0.09, min(max(height, 0.8), 1.6))
    fs.scale_bar(figure, drawn, box, "weight")
    return fs.finish(figure)


def positions_figure(
    title: str, subtitle: str, values: Float[np.ndarray, "L D"], columns: Float[np.ndarray, "L N"], label: str
) -> Figure:
    """Return a figure of the encoding of each position (some `columns` of `values`), and of their cosine similarity."""
    side, left, gap, top = 2.35, 0.62, 1.25, HEADER + 0.28
    figure = fs.new_figure(left + 2 * side + gap + 0.72, top + side + 0.52, title, subtitle)
    limit = max(float(np.abs(columns).max()), 1e-12)
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    panels = [
        (columns.T, (-limit, limit), label, "value", left),
        (unit @ unit.T, (-1.0, 1.0), "position", "cosine similarity", left + side + gap),
    ]
    for matrix, limits, name, title, x in panels:
        axes = fs.inset(figure, x, top, side, side)
        drawn = fs.draw_matrix(axes, matrix, limits=limits, signed=True)
        axes.set_xlabel("position", color=fs.QUIET, fontsize=9)
        axes.set_ylabel(name, color=fs.QUIET, fontsize=9)
        axes.set_title(title, loc="left", fontsize=9, color=fs.QUIET, pad=5)
        fs.integer_ticks(axes)
        fs.scale_bar(figure, drawn, (x + side + 0.12, top, 0.09, 1.6), "")
    return fs.finish(figure)

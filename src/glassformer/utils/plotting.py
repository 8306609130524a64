"""The look of every plot: paper, ink, one accent, and a label beside the line instead of a legend.

What is drawn is decided in `report/plots.py` and by the tasks. Figures are made without pyplot, so drawing
needs no display and leaves no figure behind.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from glassformer.utils.formatting import Number

PAPER, INK, QUIET, RULE = "#fffdf9", "#2b2926", "#827d75", "#e4dfd5"
SOFT = "#c9c3b8"
"""Bars and raw data behind the thing to be read."""
ACCENT = "#a8321f"
"""A book's red. Against greys it differs in lightness too, so it is told apart without colour vision."""

DPI, WIDTH = 200, 6.6

STYLE: Any = {
    # Each glyph comes from the first family that has it: STIX sets the page, DejaVu the rest of the world.
    "font.family": ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"],
    "font.size": 11.0,
    "text.color": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.7,
    "axes.labelcolor": QUIET,
    "axes.unicode_minus": True,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 10.0,
    "ytick.labelsize": 10.0,
    "ytick.major.size": 0.0,
    "xtick.major.size": 3.0,
    "xtick.major.width": 0.7,
    "lines.solid_capstyle": "round",
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}

LABEL_GAP = ((0, 11, "left"), (0, -11, "left"), (0, 11, "right"), (0, -11, "right"))
"""Where a label stands that has no room to the right of its point: over it, under it, or so to the left; in points."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the house, and keep matplotlib from talking (font cache, missing glyphs)."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        import matplotlib

        with warnings.catch_warnings(), matplotlib.rc_context(STYLE):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def new_figure(
    height: float, title: str, subtitle: str, *, width: float = WIDTH, right: float = 0.3, rows: Sequence[int] = (1,)
) -> Any:
    """Return (figure, axes) of some inches, with a title and a quiet line under it, both flush left.

    Args:
        height: height in inches.
        title: title.
        subtitle: unit and what to look for.
        width: width in inches.
        right: right margin in inches; wide for labels at the ends of lines.
        rows: relative heights of panels over one x-axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=list(rows))[:, 0]
    figure.subplots_adjust(0.72 / width, 0.58 / height, 1 - right / width, 1 - 0.78 / height)
    figure.text(0.3 / width, 1 - 0.3 / height, title, fontsize=15, va="center", parse_math=False)
    figure.text(0.3 / width, 1 - 0.54 / height, subtitle, color=QUIET, va="center", parse_math=False)
    return figure, axes


def end_labels(axes: Any, labels: Sequence[tuple[Number, Number, str, str]]) -> None:
    """Write labels to the right of points, those over one another pushed apart.

    Where one would cover a line that goes on there, it stands over or under its point instead, if that place is free.

    Args:
        axes: where; its limits must be final.
        labels: (x, y, text, colour), in data units.
    """
    points = [axes.transLimits.transform(axes.transScale.transform(label[:2])) for label in labels]
    placed = sorted((float(point[1]), *label) for point, label in zip(points, labels, strict=True))
    ground = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    written = [
        axes.annotate(
            text,
            (x, height),
            (7, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
            parse_math=False,
            bbox=ground,
        )
        for height, x, _, text, colour in placed
    ]
    spans = [(box.x0, box.x1) for box in (label.get_window_extent() for label in written)]
    heights = [row[0] for row in placed]
    near = [
        (i, j) for j in range(len(spans)) for i in range(j) if spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]
    ]
    for _ in range(50):  # relax: push those that are over one another apart by equal amounts
        for i, j in near:
            short = 0.095 - (heights[j] - heights[i])  # of the height of the axes
            if short > 1e-9:
                heights[i] -= short / 2
                heights[j] += short / 2
    for label, height, (_, x, *_) in zip(written, heights, placed, strict=True):
        label.xy = (x, height)
        if _covers_a_line(axes, label):
            for x_offset, y_offset, side in LABEL_GAP:
                label.set(position=(x_offset, y_offset), horizontalalignment=side)
                if not _covers_a_line(axes, label):
                    break
            else:
                label.set(position=(7, 0), horizontalalignment="left")


def _covers_a_line(axes: Any, label: Any) -> bool:
    """Return True if a point of any line lies under a label."""
    box = label.get_window_extent()
    for line in axes.lines:
        x, y = line.get_transform().transform(line.get_path().interpolated(40).vertices).T
        if ((box.x0 < x) & (x < box.x1) & (box.y0 < y) & (y < box.y1)).any():
            return True
    return False


def note(axes: Any, at: tuple[Number, Number], text: str, offset: tuple[int, int] = (2, 3)) -> None:
    """Write a quiet remark beside a point, in data units, moved by `offset` points; rules do not cross it."""
    ground = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    axes.annotate(text, at, offset, textcoords="offset points", color=QUIET, fontsize=10, parse_math=False, bbox=ground)


def thousands(axis: Any) -> None:
    """Write the ticks of an axis as 12,000."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_major_formatter("{x:,.0f}")


def png(figure: Any) -> bytes:
    """Return the figure as PNG, the same bytes for the same figure and matplotlib."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()

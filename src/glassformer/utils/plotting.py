"""The look of every plot: paper, ink, one accent, and a label beside the line instead of a legend.

What is drawn is decided in `report/write.py` and by the tasks. Figures are made without pyplot, so drawing
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
"""A book's red. Against greys it differs in lightness too, so it is distinct without colour vision."""

DPI, WIDTH = 200, 6.6

STYLE: Any = {
    # Each glyph comes from the first family that has it: STIX sets the page, DejaVu the rest of the world.
    "font.family": ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"],
    "font.size": 11.0,
    "text.color": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}


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


def new_figure(height: float, title: str, subtitle: str, *, width: float = WIDTH, right: float = 0.3) -> Any:
    """Return (figure, axes) of some inches, with a title and a quiet line under it, both flush left.

    Args:
        height: height in inches.
        title: title.
        subtitle: unit and what to look for.
        width: width in inches.
        right: right margin in inches; wide for labels at the ends of lines.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)
    axes = figure.subplots()
    figure.subplots_adjust(0.72 / width, 0.58 / height, 1 - right / width, 1 - 0.78 / height)
    figure.text(0.3 / width, 1 - 0.3 / height, title, fontsize=15, va="center", parse_math=False)
    figure.text(0.3 / width, 1 - 0.54 / height, subtitle, color=QUIET, va="center", parse_math=False)
    return figure, axes


def end_labels(axes: Any, labels: Sequence[tuple[Number, Number, str, str]]) -> None:
    """Write labels to the right of points, those over one another pushed apart.

    Args:
        axes: where; its limits must be final.
        labels: (x, y, text, colour), in data units.
    """
    points = [axes.transLimits.transform(axes.transScale.transform(label[:2])) for label in labels]
    below = -1.0
    for height, x, _, text, colour in sorted((y, *label) for (_, y), label in zip(points, labels, strict=True)):
        below = max(height, below + 0.095)  # of the height of the axes
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(text, (x, below), (7, 0), color=colour, va="center", parse_math=False, **place)


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

"""How figures for papers look: fonts for every script, colours that survive a grey printer, matrices of cells.

Figures are made without pyplot, so drawing needs no display and leaves no figure behind. What is drawn is
decided in `trace_plots.py` and `attribution_figure.py`; the plots of a training report have their own look.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.utils import plotting as ps
from glassformer.utils.atomic_io import atomic_write_bytes

INK, QUIET, RULE = ps.INK, ps.QUIET, ps.RULE
PAPER = "#ffffff"
"""The page of a paper is white, whatever the report's is."""

POSITIVE, NEGATIVE = "#d9730d", "#2166c4"
"""Orange for, blue against, as on the page: told apart by every kind of colour vision, and never by colour alone."""

SEQUENTIAL = ["#ffffff", "#cfe3dc", "#86bcab", "#3c9079", "#0b5a47"]
DIVERGING = [NEGATIVE, "#90b3e2", "#ffffff", "#ecb986", POSITIVE]

FAMILIES = ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"]
"""They come with matplotlib, so they are everywhere."""

OTHER_SCRIPTS = [
    *("Noto Serif CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Zen Hei"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Symbols2"),
    *("Segoe UI Symbol", "Segoe UI Emoji", "Arial Unicode MS"),
]
"""Asked for what the first families lack, if the machine has them."""

SUFFIXES = (".pdf", ".png", ".svg")
SMALLEST = 3.6
"""Points below which letters are no letters any more."""

MIN_GRID = 0.05
"""Inches of a cell from which a white line between cells helps."""

MAX_VECTOR_CELLS = 64 * 64
"""Above this the cells of a matrix become one image of exactly a pixel a cell; the text stays text."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in this style, with matplotlib kept quiet."""
    with ps.style():
        import matplotlib

        ours: Any = {
            "font.family": [*FAMILIES, *_installed(tuple(OTHER_SCRIPTS))],
            "font.size": 10.0,
            "figure.facecolor": PAPER,
            "axes.facecolor": PAPER,
            "savefig.facecolor": PAPER,
            "axes.grid": False,
            "hatch.linewidth": 0.5,
            "pdf.fonttype": 42,  # whole glyphs, so that the text of a PDF can be searched and copied
            "svg.fonttype": "none",  # likewise
            "svg.hashsalt": "glassformer",
        }
        with matplotlib.rc_context(ours):
            yield


def new_figure(width: float, height: float, title: str, subtitle: str) -> Any:
    """A figure of inches, with a title and a quiet line under it, both flush left."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=ps.DPI)
    FigureCanvasAgg(figure)
    for drop, text, size, colour in ((0.24, title, 13, INK), (0.46, subtitle, 9.5, QUIET)):
        figure.text(
            0.12 / width,
            1 - drop / height,
            printable(text),
            fontsize=size,
            color=colour,
            va="center",
            parse_math=False,
        )
    return figure


def finish(figure: Any) -> Any:
    """Lay out once while the style holds, so that ticks made late look the same, and return the figure."""
    figure.draw_without_rendering()
    return figure


def inset(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Axes at a place in inches, counted from the upper left corner of the figure."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def colours(signed: bool) -> Any:
    """The colour map: white to green for weights, blue over white to orange for signed numbers."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("glassformer", DIVERGING if signed else SEQUENTIAL)


def draw_matrix(
    axes: Any,
    values: np.ndarray,
    *,
    limits: tuple[float, float],
    masked: np.ndarray | None = None,
    signed: bool = False,
) -> Any:
    """Draw rows × columns as cells, row 0 on top, those that are masked hatched instead of coloured.

    Returns:
        What `scale_bar` takes.
    """
    n_rows, n_columns = values.shape
    shown = np.ma.masked_array(values, masked) if masked is not None else values
    look: Any = {"cmap": colours(signed), "vmin": limits[0], "vmax": limits[1]}
    if values.size <= MAX_VECTOR_CELLS:
        edges = np.arange(n_columns + 1) - 0.5, np.arange(n_rows + 1) - 0.5
        width, height = axes.get_position().size * axes.figure.get_size_inches()
        line = 0.3 if min(width / n_columns, height / n_rows) > MIN_GRID else 0.1
        look["edgecolor"] = PAPER if line > 0.2 else "face"  # against hairlines between cells in PDF viewers
        drawn = axes.pcolormesh(*edges, shown, linewidth=line, **look)
    else:
        drawn = axes.imshow(shown, interpolation="none", aspect="auto", **look)
    axes.set_xlim(-0.5, n_columns - 0.5)
    axes.set_ylim(n_rows - 0.5, -0.5)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(RULE)
    axes.tick_params(length=0, pad=2)
    if masked is not None and masked.any():
        _hatch(axes, masked)
    return drawn


def _hatch(axes: Any, masked: np.ndarray) -> None:
    """Hatch the cells that are True; neighbours in a row are drawn as one rectangle."""
    from matplotlib.collections import PolyCollection

    boxes = []
    for row, cells in enumerate(masked):
        padded = np.diff(np.concatenate([[0], cells.astype(np.int8), [0]]))
        for start, end in zip(np.flatnonzero(padded == 1), np.flatnonzero(padded == -1), strict=True):
            left, right, top, bottom = start - 0.5, end - 0.5, row - 0.5, row + 0.5
            boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
    axes.add_collection(
        PolyCollection(boxes, facecolor="none", edgecolor="#b9b3a8", hatch="//////", linewidth=0),
        autolim=False,
    )


def scale_bar(figure: Any, drawn: Any, place: tuple[float, float, float, float], label: str) -> None:
    """A slim bar of the colours with its numbers, at (left, top, width, height) in inches."""
    axes = inset(figure, *place)
    bar = figure.colorbar(drawn, cax=axes)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, pad=2)
    bar.locator = _few_ticks()
    bar.formatter = lambda value, _: f"{value:.3g}".replace("-", "−")
    bar.update_ticks()
    axes.set_title(label, fontsize=8, color=QUIET, loc="left", pad=8, parse_math=False)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4)


def label_points(cell: float) -> float:
    """The size of letters beside cells of so many inches."""
    return min(9.5, 72 * cell * 0.82)


def label_cells(axes: Any, rows: Sequence[str], columns: Sequence[str], cell: float) -> None:
    """Write tokens beside rows and above columns; where cells are too small for all of them, every n-th."""
    points = label_points(cell)
    every = 1 if points >= SMALLEST else int(np.ceil(SMALLEST / points))
    look: Any = {"fontsize": max(points, SMALLEST), "color": INK, "parse_math": False}
    axes.set_yticks(range(0, len(rows), every), [printable(t) for t in rows[::every]], **look)
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, len(columns), every), [printable(t) for t in columns[::every]], rotation=90, **look)


def whole_ticks(axes: Any) -> None:
    """A few numbers at each axis, counted from 0 and whole."""
    from matplotlib.ticker import MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.tick_params(labelsize=8)


def text_width(figure: Any, texts: Sequence[str], points: float) -> list[float]:
    """Widths in inches of texts as `printable` writes them."""
    from matplotlib.font_manager import FontProperties

    font, renderer = FontProperties(size=points), figure.canvas.get_renderer()
    return [renderer.get_text_width_height_descent(printable(t), font, ismath=False)[0] / figure.dpi for t in texts]


def printable(text: str) -> str:
    """The text with what no font here can draw written as its code: U+1F600.

    Line breaks and other controls are written as their codes too, so that a label stays one line. The heavy
    bar that tokenizers write for a space becomes the lighter open box.
    """
    text = text.replace("▁", "␣")
    if text.isascii() and text.isprintable():
        return text
    glyphs = _glyphs(tuple(FAMILIES))
    missing = [c for c in text if not c.isprintable() or ord(c) not in glyphs]
    if any(c.isprintable() for c in missing):
        glyphs = glyphs | _glyphs(_installed(tuple(OTHER_SCRIPTS)))
    known = {"\n": "↵", "\t": "⇥"}
    return "".join(c if c.isprintable() and ord(c) in glyphs else known.get(c, f"U+{ord(c):04X}") for c in text)


@functools.cache
def _installed(families: tuple[str, ...]) -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    names = {font.name for font in fontManager.ttflist}
    return tuple(name for name in families if name in names)


@functools.cache
def _glyphs(families: tuple[str, ...]) -> frozenset[int]:
    """Every code point that some family has a glyph for."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    found: set[int] = set()
    for name in families:
        found |= get_font(findfont(FontProperties(family=[name]))).get_charmap().keys()
    return frozenset(found)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the suffix; the same figure gives the same bytes.

    Raises:
        UsageError: another suffix.
        ResourceError: the file cannot be written.
    """
    check_suffix(path)
    kind, buffer = path.suffix.lower()[1:], BytesIO()
    nameless: dict[str, Any] = {
        "pdf": {"CreationDate": None},
        "svg": {"Date": None},
        "png": {"Software": None},
    }
    with style(), warnings.catch_warnings():
        figure.savefig(buffer, format=kind, metadata=nameless[kind])
    data = buffer.getvalue()
    if kind == "svg":  # a browser has no STIXGeneral; these have the same widths
        data = data.replace(b"'STIXGeneral', ", b"'STIXGeneral', 'STIX Two Text', 'Times New Roman', ")
    atomic_write_bytes(path, data)


def check_suffix(path: Path) -> None:
    """Refuse a file name that names no format, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"a figure is written as {', '.join(SUFFIXES)}; {path.name} is none of them",
            f"for example: {path.with_suffix('.pdf').name}",
        )

"""Style figures for papers: fonts for every script, colours that stay distinct in grey, matrices of cells.

Figures are made without pyplot, so drawing needs no display and leaves no figure open. The plots of a training report
have their own style.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.utils import plotting as ps
from glassformer.utils.atomic_io import atomic_write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, QUIET, RULE = ps.INK, ps.QUIET, ps.RULE
PAPER = "#ffffff"
"""Papers are white, unlike the report."""

POSITIVE, NEGATIVE = "#d9730d", "#2166c4"
"""Orange for positive and blue for negative, as on the page: distinct with any colour vision, never the only sign."""

SEQUENTIAL = ["#ffffff", "#cfe3dc", "#86bcab", "#3c9079", "#0b5a47"]
DIVERGING = [NEGATIVE, "#90b3e2", "#ffffff", "#ecb986", POSITIVE]

FAMILIES = ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"]
"""Fonts that come with matplotlib."""

OTHER_SCRIPTS = [
    *("Noto Serif CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Zen Hei"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Symbols2"),
    *("Segoe UI Symbol", "Segoe UI Emoji", "Arial Unicode MS"),
]
"""Fallbacks for scripts that the first families lack, where installed."""

SUFFIXES = (".pdf", ".png", ".svg")
MIN_FONT_SIZE = 3.6
"""Smallest legible font size, in points."""

MIN_GRID = 0.05
"""Minimum size of a cell, in inches, for a white line between cells."""

MAX_VECTOR_CELLS = 64 * 64
"""Maximum cells drawn as vectors; larger matrices become an image of one pixel per cell."""


@contextmanager
def style() -> Iterator[None]:
    """Return a context that applies this style and silences matplotlib."""
    with ps.style():
        import matplotlib

        settings: Any = {
            "font.family": [*FAMILIES, *_installed(tuple(OTHER_SCRIPTS))],
            "font.size": 10.0,
            "figure.facecolor": PAPER,
            "axes.facecolor": PAPER,
            "savefig.facecolor": PAPER,
            "axes.grid": False,
            "hatch.linewidth": 0.5,
            # Whole glyphs, so that the text of a file can be searched and copied.
            "pdf.fonttype": 42,
            "svg.fonttype": "none",
            "svg.hashsalt": "glassformer",
        }
        with matplotlib.rc_context(settings):
            yield


def new_figure(width: float, height: float, title: str, subtitle: str) -> Figure:
    """Return a figure of a size in inches, with a title and a muted subtitle, both flush left."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=ps.DPI)
    FigureCanvasAgg(figure)
    for drop, text, size, colour in ((0.24, title, 13, INK), (0.46, subtitle, 9.5, QUIET)):
        figure.text(
            0.12 / width, 1 - drop / height, printable(text), fontsize=size, color=colour, va="center", parse_math=False
        )
    return figure


def finish(figure: Figure) -> Figure:
    """Lay out the figure while the style is active, so that ticks created late have it too, and return it."""
    figure.draw_without_rendering()
    return figure


def inset(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Return new axes at a position in inches from the upper left corner of the figure."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def colours(signed: bool) -> Any:
    """Return the colour map: white to green for weights, blue over white to orange for signed numbers."""
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
    """Draw a matrix of coloured cells, row 0 on top, and hatch masked ones; return the artist for `scale_bar`."""
    n_rows, n_columns = values.shape
    cells = np.ma.masked_array(values, masked) if masked is not None else values
    options: Any = {"cmap": colours(signed), "vmin": limits[0], "vmax": limits[1]}
    if values.size <= MAX_VECTOR_CELLS:
        edges = np.arange(n_columns + 1) - 0.5, np.arange(n_rows + 1) - 0.5
        width, height = axes.get_position().size * axes.figure.get_size_inches()
        line = 0.3 if min(width / n_columns, height / n_rows) > MIN_GRID else 0.1
        # Against hairlines between cells in PDF viewers.
        options["edgecolor"] = PAPER if line > 0.2 else "face"
        drawn = axes.pcolormesh(*edges, cells, linewidth=line, **options)
    else:
        drawn = axes.imshow(cells, interpolation="none", aspect="auto", **options)
    axes.set_xlim(-0.5, n_columns - 0.5)
    axes.set_ylim(n_rows - 0.5, -0.5)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(RULE)
    axes.tick_params(length=0, pad=2)
    if masked is not None and masked.any():
        _hatch(axes, masked)
    return drawn


def _hatch(axes: Any, masked: np.ndarray) -> None:
    """Hatch the cells that are True; neighbours in a row form one rectangle."""
    from matplotlib.collections import PolyCollection

    boxes = []
    for row, cells in enumerate(masked):
        padded = np.diff(np.concatenate([[0], cells.astype(np.int8), [0]]))
        for start, end in zip(np.flatnonzero(padded == 1), np.flatnonzero(padded == -1), strict=True):
            left, right, top, bottom = start - 0.5, end - 0.5, row - 0.5, row + 0.5
            boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
    axes.add_collection(
        PolyCollection(boxes, facecolor="none", edgecolor="#b9b3a8", hatch="//////", linewidth=0), autolim=False
    )


def scale_bar(figure: Any, drawn: Any, box: tuple[float, float, float, float], label: str) -> None:
    """Add a slim colour bar at (left, top, width, height) in inches."""
    from matplotlib.ticker import MaxNLocator

    axes = inset(figure, *box)
    bar = figure.colorbar(drawn, cax=axes)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, pad=2)
    bar.locator = MaxNLocator(nbins=4)
    bar.formatter = lambda value, _: f"{value:.3g}".replace("-", "−")
    bar.update_ticks()
    axes.set_title(label, fontsize=8, color=QUIET, loc="left", pad=8, parse_math=False)


def label_points(cell: float) -> float:
    """Return the font size of labels for cells of a size in inches."""
    return min(9.5, 72 * cell * 0.82)


def label_cells(axes: Any, rows: Sequence[str], columns: Sequence[str], cell: float) -> None:
    """Write tokens beside rows and above columns, only every n-th where cells are too small for all."""
    points = label_points(cell)
    every = 1 if points >= MIN_FONT_SIZE else int(np.ceil(MIN_FONT_SIZE / points))
    options: Any = {"fontsize": max(points, MIN_FONT_SIZE), "color": INK, "parse_math": False}
    axes.set_yticks(range(0, len(rows), every), [printable(t) for t in rows[::every]], **options)
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, len(columns), every), [printable(t) for t in columns[::every]], rotation=90, **options)


def integer_ticks(axes: Any) -> None:
    """Set a few integer ticks on both axes."""
    from matplotlib.ticker import MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.tick_params(labelsize=8)


def text_width(figure: Any, texts: Sequence[str], points: float) -> list[float]:
    """Return the widths in inches of texts, as `printable` writes them."""
    from matplotlib.font_manager import FontProperties

    font, renderer = FontProperties(size=points), figure.canvas.get_renderer()
    return [renderer.get_text_width_height_descent(printable(t), font, ismath=False)[0] / figure.dpi for t in texts]


def printable(text: str) -> str:
    """Return the text with characters that no font can draw, and control characters, as codes: U+1F600.

    The heavy bar of tokenizers for a space becomes the lighter open box.
    """
    text = text.replace("▁", "␣")
    if text.isascii() and text.isprintable():
        return text
    glyphs = _glyphs(tuple(FAMILIES))
    missing = [c for c in text if not c.isprintable() or ord(c) not in glyphs]
    if any(c.isprintable() for c in missing):
        glyphs = glyphs | _glyphs(_installed(tuple(OTHER_SCRIPTS)))
    symbols = {"\n": "↵", "\t": "⇥"}
    return "".join(c if c.isprintable() and ord(c) in glyphs else symbols.get(c, f"U+{ord(c):04X}") for c in text)


@functools.cache
def _installed(families: tuple[str, ...]) -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    names = {font.name for font in fontManager.ttflist}
    return tuple(name for name in families if name in names)


@functools.cache
def _glyphs(families: tuple[str, ...]) -> frozenset[int]:
    """Return the code points that some family has a glyph for."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    glyphs: set[int] = set()
    for name in families:
        glyphs |= get_font(findfont(FontProperties(family=[name]))).get_charmap().keys()
    return frozenset(glyphs)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PDF, PNG or SVG, by the suffix; equal figures give equal bytes."""
    check_suffix(path)
    kind, buffer = path.suffix.lower()[1:], BytesIO()
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
    with style(), warnings.catch_warnings():
        figure.savefig(buffer, format=kind, metadata=metadata[kind])
    data = buffer.getvalue()
    # Browsers have no STIXGeneral; these fonts have the same widths.
    if kind == "svg":
        data = data.replace(b"'STIXGeneral', ", b"'STIXGeneral', 'STIX Two Text', 'Times New Roman', ")
    atomic_write_bytes(path, data)


def check_suffix(path: Path) -> None:
    """Raise UsageError for a file name of another format, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"a figure is written as {', '.join(SUFFIXES)}; {path.name} is none of them",
            f"for example: {path.with_suffix('.pdf').name}",
        )

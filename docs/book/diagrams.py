"""Diagrams of layers, drawn once for all chapters: boxes from bottom to top, residual connections in the accent colour.

A unit is an inch. The order of norm and sublayer is that of the library, pre-norm, unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from drawings import ACCENT, INK, STYLE, drawing, plain_axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from torch import Tensor

WIDTH, HEIGHT, GAP, SIDE = 1.9, 0.34, 0.21, 0.34
"""Width and height of a box, the arrow between two, and how far a residual connection stands out beside them."""


class Sublayer(NamedTuple):
    """What stands inside one residual connection."""

    name: str
    page: str
    inputs: str = ""
    """What the arrow into it carries."""
    memory: str = ""
    """What it takes from the encoder's output."""


ENCODER_LAYER = (Sublayer("self-attention", "attention.html", "Q, K, V"), Sublayer("feed-forward", "block.html"))
DECODER_LAYER = (
    Sublayer("masked self-attention", "masks.html", "Q, K, V"),
    Sublayer("cross-attention", "decoder.html", "Q", "K, V"),
    Sublayer("feed-forward", "block.html"),
)


def draw_encoder_layer() -> Any:
    """Return a figure of an encoder layer with its two residual connections."""
    return _draw({"encoder layer": (ENCODER_LAYER, True)})


def draw_decoder_layer() -> Any:
    """Return a figure of a decoder layer with its three residual connections, and where the encoder's output enters."""
    return _draw({"decoder layer": (DECODER_LAYER, True)}, room=1.2)


def draw_norm_orders() -> Any:
    """Return a figure of the same encoder layer in pre-norm and in post-norm order, side by side."""
    return _draw({"pre-norm": (ENCODER_LAYER, True), "post-norm (the paper)": (ENCODER_LAYER, False)})


def draw_translator() -> Any:
    """Return a figure of the encoder–decoder: N × encoder layer, N × decoder layer, embeddings, norms and output."""
    left, right, bottom = 1.85, 5.05, 1.62
    with _in_inches(6.9, 8.6) as (figure, axes):
        for x, ids, side in ((left, "source ids", -1), (right, "target ids so far", 1)):
            _text(axes, x, 0.15, ids, "text.html")
            _arrow(axes, x, 0.3, 0.5)
            _box(axes, x, 0.5, "embedding", "text.html")
            _arrow(axes, x, 0.5 + HEIGHT, 1.16)
            _sum(axes, x, 1.26)
            _box(axes, x + side * 1.25, 1.26 - HEIGHT / 2, "positions", "positions.html", 0.95)
            _line(axes, [x + side * 0.775, x + side * 0.1], [1.26, 1.26], arrow=True)
            _arrow(axes, x, 1.36, bottom)
        top, _ = draw_layer(axes, left, bottom, ENCODER_LAYER, -1)
        _text(axes, left - 1.57, (bottom + top) / 2, "N ×", "encoder.html", 13)
        last = _box(axes, left, top + 0.3, "norm", "block.html")
        _arrow(axes, left, top, top + 0.3)
        top, [memory] = draw_layer(axes, right, bottom, DECODER_LAYER, 1)
        _text(axes, right + 1.57, (bottom + top) / 2, "N ×", "decoder.html", 13)
        path = [left, left, 3.43, 3.43, right - WIDTH / 2], [last, last + 0.3, last + 0.3, memory, memory]
        _line(axes, *path, arrow=True)
        _text(axes, left, last + 0.44, "memory: a vector per source token", "encoder.html")
        for name, page in (("norm", "block.html"), ("linear: a logit per token", "language.html")):
            _arrow(axes, right, top, top + 0.3)
            top = _box(axes, right, top + 0.3, name, page)
        _arrow(axes, right, top, top + 0.3)
        _text(axes, right, top + 0.42, "next token: softmax, choose", "translation.html")
        return figure


def draw_layer(
    axes: Any, x: float, y: float, sublayers: Sequence[Sublayer], side: int = 1, pre_norm: bool = True
) -> tuple[float, list[float]]:
    """Draw one layer upwards from (x, y) inside a frame.

    Args:
        axes: in inches.
        x: middle of the boxes.
        y: lower edge of the frame.
        sublayers: from the first, which is lowest.
        side: 1 draws the residual connections right of the boxes, -1 left.
        pre_norm: whether the norm stands before the sublayer and inside the residual connection.

    Returns:
        The upper edge of the frame, and the height of each box that takes the encoder's output.
    """
    low, memories = y, []
    y += 0.12
    _line(axes, [x, x], [low, y])
    for sublayer in sublayers:
        branch = y + 0.06
        order = ["norm", sublayer.name] if pre_norm else [sublayer.name]
        _line(axes, [x, x], [y, y + 0.12])
        y += 0.12
        outside = "right" if side > 0 else "left"  # on the side without residual connections
        for name in order:
            start, y = y, y + GAP
            _arrow(axes, x, start, y)
            if name == sublayer.name:
                _text(
                    axes, x - side * 0.1, start + GAP / 2, sublayer.inputs, size=8, ha="right" if side > 0 else "left"
                )
                memories += [y + HEIGHT / 2] if sublayer.memory else []
                if sublayer.memory:
                    at = x - side * (WIDTH / 2 + 0.05)
                    _text(axes, at, y + HEIGHT / 2 + 0.1, sublayer.memory, size=8, ha=outside)
            y = _box(axes, x, y, name, "block.html" if name == "norm" else sublayer.page)
        _arrow(axes, x, y, y + GAP - 0.06)
        y += GAP + 0.04
        _sum(axes, x, y, ACCENT)
        out = x + side * (WIDTH / 2 + SIDE / 2)
        _line(axes, [x, out, out, x + side * 0.1], [branch, branch, y, y], ACCENT, arrow=True)
        y += 0.1
        if not pre_norm:
            _arrow(axes, x, y, y + GAP)
            y = _box(axes, x, y + GAP, "norm", "block.html")
    _line(axes, [x, x], [y, y + 0.14])
    y += 0.14
    _frame(axes, x - WIDTH / 2 - SIDE, low, WIDTH + 2 * SIDE, y - low)
    return y, memories


def _draw(layers: Mapping[str, tuple[Sequence[Sublayer], bool]], room: float = 0.2) -> Any:
    """Return a figure of layers side by side; `room` is left free at the left for what comes from the encoder."""
    most = max(map(len, (sublayers for sublayers, _ in layers.values())))

    with _in_inches(room + 3.1 * len(layers) - 0.2, 1.5 + 1.57 * most) as (figure, axes):
        for i, (name, (sublayers, pre_norm)) in enumerate(layers.items()):
            x = room + WIDTH / 2 + SIDE + i * 3.1
            _text(axes, x, 0.12, "a vector per token")
            _arrow(axes, x, 0.25, 0.45)
            top, memories = draw_layer(axes, x, 0.45, sublayers, 1, pre_norm)
            _arrow(axes, x, top, top + 0.22)
            _text(axes, x, top + 0.36, name, size=12)
            for memory in memories:
                _line(axes, [room, x - WIDTH / 2], [memory, memory], arrow=True)
                _text(axes, room - 0.08, memory, "memory,\nfrom the\nencoder", "encoder.html", ha="right")
        return figure


def draw_connections(panels: Mapping[str, tuple[Tensor, str]], mark: int) -> Any:
    """Return a figure of which inputs each output sees.

    Args:
        panels: by name a boolean (outputs, inputs), and a note below it.
        mark: the output whose connections have the accent colour.
    """

    with _in_inches(1.9 * len(panels) + 0.1, 2.25) as (figure, axes):
        for i, (name, (seen, note)) in enumerate(panels.items()):
            n, x0 = len(seen), 0.42 + 1.9 * i
            step = 1.35 / (n - 1)
            for row in sorted(range(n), key=lambda row: row == mark):
                colour, width = (ACCENT, 2.0) if row == mark else (INK, 0.4)
                for column in seen[row].nonzero().flatten().tolist():
                    _line(axes, [x0 + step * column, x0 + step * row], [0.75, 1.75], colour, lw=width)
            for column in range(n):
                axes.plot(x0 + step * column, 0.75, "o", color=INK, markersize=6)
                axes.plot(x0 + step * column, 1.75, "o", color=ACCENT if column == mark else INK, markersize=6)
            _text(axes, x0 + 0.67, 2.05, name, size=11)
            _text(axes, x0 + 0.67, 0.33, note, size=9)
        _text(axes, 0.28, 1.75, "out", size=9, ha="right")
        _text(axes, 0.28, 0.75, "in", size=9, ha="right")
        return figure


def draw_normalized(panels: Mapping[str, Tensor]) -> Any:
    """Return a figure of vectors (B, L, D), a grid per text: the values that share a mean and a variance are filled.

    Args:
        panels: by name a boolean (B, L, D) of the values that are normalized together.
    """
    cell = 0.22

    first = next(iter(panels.values()))
    with _in_inches(2.35 * len(panels), 0.6 + first.shape[0] * (first.shape[1] * cell + 0.25)) as (figure, axes):
        for i, (name, together) in enumerate(panels.items()):
            n_texts, n_tokens, n_features = together.shape
            x0 = 0.65 + 2.35 * i
            _text(axes, x0 + cell * n_features / 2, 0.25 + n_texts * (n_tokens * cell + 0.25), name, size=11)
            for text, token, feature in together.new_ones(together.shape).nonzero().tolist():
                at = x0 + cell * feature, 0.3 + (n_texts - 1 - text) * (n_tokens * cell + 0.25)
                filled = bool(together[text, token, feature])
                style = {"facecolor": ACCENT if filled else "none", "alpha": 0.75 if filled else 1}
                y = at[1] + cell * (n_tokens - 1 - token)
                axes.add_patch(Rectangle((at[0], y), cell, cell, edgecolor=INK, lw=0.5, **style))
            for text in range(n_texts):
                y = 0.3 + (n_texts - 1 - text) * (n_tokens * cell + 0.25) + n_tokens * cell / 2
                _text(axes, x0 - 0.12, y, f"text {text}\ntokens", size=8, ha="right")
            _text(axes, x0 + cell * n_features / 2, 0.13, "features", size=8)
        return figure


def draw_curves(x: Tensor, curves: Mapping[str, Tensor], title: str, y_label: str, x_label: str = "x") -> Any:
    """Return a figure of functions of x, the first in the accent colour; the legend names them."""
    with drawing(5.2, 3.0) as (figure, axes):
        for (name, values), style in zip(curves.items(), ("-", "--", ":"), strict=False):
            look = {"color": ACCENT, "lw": 2.0, "zorder": 3} if style == "-" else {"color": INK, "lw": 1.0}
            axes.plot(x, values, style, label=name, **look)
        axes.axhline(0, color=INK, lw=0.4)
        axes.axvline(0, color=INK, lw=0.4)
        axes.legend(frameon=False, labelcolor=INK)
        plain_axes(axes, title, x_label, y_label)
        return figure


@contextmanager
def _in_inches(width: float, height: float) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and its one plain coordinate system, in which a unit is an inch."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(0, height)
        axes.axis("off")
        yield figure, axes


def _box(axes: Any, x: float, y: float, name: str, page: str, width: float = WIDTH) -> float:
    """Draw a box that links to a page, its lower edge at y; return its upper edge."""
    style = "round,pad=0,rounding_size=0.06"
    box = FancyBboxPatch((x - width / 2, y), width, HEIGHT, style, facecolor="none", edgecolor=INK, lw=0.9, url=page)
    axes.add_patch(box)
    _text(axes, x, y + HEIGHT / 2, name, page)
    return y + HEIGHT


def _frame(axes: Any, x: float, y: float, width: float, height: float) -> None:
    """Draw the frame of a layer, dashed."""
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, style, facecolor="none", edgecolor=INK, lw=0.7, ls=(0, (4, 3)))
    )


def _sum(axes: Any, x: float, y: float, colour: str = INK) -> None:
    """Draw a circle with a plus, where two vectors are added."""
    axes.add_patch(Circle((x, y), 0.1, facecolor="none", edgecolor=colour, lw=1.2))
    for dx, dy in ((0.06, 0), (0, 0.06)):
        _line(axes, [x - dx, x + dx], [y - dy, y + dy], colour)


def _arrow(axes: Any, x: float, low: float, high: float) -> None:
    """Draw an arrow upwards."""
    _line(axes, [x, x], [low, high], arrow=True)


def _line(
    axes: Any, x: Sequence[float], y: Sequence[float], colour: str = INK, arrow: bool = False, lw: float = 1.1
) -> None:
    """Draw a line through points, with the head of an arrow at its end if asked."""
    axes.plot(x, y, "-", color=colour, lw=lw, solid_joinstyle="round", solid_capstyle="butt")
    if arrow:
        dx, dy = x[-1] - x[-2], y[-1] - y[-2]
        length = (dx * dx + dy * dy) ** 0.5
        start = x[-1] - 0.08 * dx / length, y[-1] - 0.08 * dy / length
        style = {
            "arrowstyle": "-|>,head_width=0.18,head_length=0.35",
            "color": colour,
            "lw": lw,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", (x[-1], y[-1]), start, arrowprops=style)


def _text(
    axes: Any,
    x: float,
    y: float,
    text: str,
    page: str | None = None,
    size: float = 9.5,
    ha: str = "center",
    **more: Any,
) -> None:
    """Write a text in the ink of the page, as a link if a page is given."""
    axes.text(x, y, text, ha=ha, va="center", color=INK, fontsize=size, url=page)

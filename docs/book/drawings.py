"""Matrices and diagrams of the book in one style: colours as on the library's page, hatched where something is hidden.

A value is drawn by its share of the largest one: orange if positive and blue if negative; green where all are weights
or truth values, which have no sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

INK = "#010203"
"""A colour that no figure uses otherwise; it becomes the colour of the page's text, light or dark."""
ACCENT = "#2f6fb0"
"""For the one thing a figure is about; readable on white and on black."""
POSITIVE, NEGATIVE, WEIGHT = "#d9730d", "#2f7fd0", "#2a9476"
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "book", "font.size": 11, "hatch.linewidth": 0.7}
"""Text stays text, and a figure drawn again has the same bytes."""


MOST_SQUARES = 500
"""A matrix with more cells is drawn as one picture: a square takes about 150 bytes of the page."""


@contextmanager
def drawing(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure in inches in the style of the book, and its axes: an array where there are several."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        yield figure, figure.subplots(rows, columns, **how)
        figure.tight_layout()


def draw_matrix(
    x: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    axes_labels: tuple[str, str] = ("row", "column"),
    hidden: Tensor | None = None,
    numbers: bool = True,
) -> Any:
    """Return a figure of a matrix, a filled cell for each value.

    Args:
        x: values (R, C); truth values are drawn as 1 and 0.
        rows: names of the rows.
        columns: names of the columns.
        title: what the figure shows.
        axes_labels: what a row is and what a column is.
        hidden: boolean (R, C); these cells are hatched instead of filled.
        numbers: whether values are written into cells, which are then larger.
    """
    inches = 0.72 if numbers else 0.44 if len(columns) <= 8 else 0.3
    longest = max(map(len, columns), default=0)
    turned = 0.1 * longest > inches  # names of columns that would touch each other
    width = max(inches * len(columns) + 0.11 * max(map(len, rows), default=0) + 0.6, 0.1 * len(title) + 0.9)
    with drawing(width, inches * len(rows) + 1.0 + (0.09 * longest if turned else 0)) as (figure, axes):
        fill_cells(axes, x, hidden, numbers)
        axes.set_xticks(range(len(columns)), columns, rotation=90 if turned else 0)
        axes.set_yticks(range(len(rows)), rows)
        plain_axes(axes, title, axes_labels[1], axes_labels[0])
        return figure


def fill_cells(axes: Any, x: Tensor, hidden: Tensor | None = None, numbers: bool = False) -> None:
    """Draw the cells of a matrix into axes, row 0 at the top."""
    colours = colours_of(x)
    as_picture = x.numel() > MOST_SQUARES and hidden is None and not numbers
    if as_picture:
        axes.imshow(colours, interpolation="nearest")
    for i, row in enumerate([] if as_picture else x.tolist()):
        for j, value in enumerate(row):
            style = {"facecolor": colours[i, j], "edgecolor": INK, "lw": 0.3}
            if hidden is not None and hidden[i, j]:
                style |= {"facecolor": "none", "hatch": "////"}
            axes.add_patch(rectangle(j, i, 1, **style))
            if numbers and (hidden is None or not hidden[i, j]):
                text = f"{value:.3f}".rstrip("0").rstrip(".")
                axes.text(j, i, text, ha="center", va="center", color=INK, fontsize=10)
    axes.set(xlim=(-0.5, x.shape[1] - 0.5), ylim=(x.shape[0] - 0.5, -0.5), aspect="equal")


def colours_of(x: Tensor) -> np.ndarray:
    """Return the colour of each value as (R, C, 4): its hue is the sign, its opacity the share of the largest value."""
    signed = x.dtype != torch.bool and bool((x < 0).any())
    values = x.float().numpy()
    most = float(np.abs(values).max()) or 1.0
    positive, negative = (matplotlib.colors.to_rgb(c) for c in (POSITIVE if signed else WEIGHT, NEGATIVE))
    colours = np.zeros((*x.shape, 4))
    colours[..., :3] = np.where((values >= 0)[..., None], positive, negative)
    colours[..., 3] = 0.8 * np.abs(values) / most  # below 1, so that a number in the cell stays readable
    return colours


def draw_weights(weights: Tensor, queries: Sequence[str], keys: Sequence[str], title: str, numbers: bool = True) -> Any:
    """Return a figure of attention weights (Q, K), with the number in each cell unless `numbers` is false."""
    return draw_matrix(weights, queries, keys, title, ("query", "key"), numbers=numbers)


def draw_mask(mask: Tensor, queries: Sequence[str], keys: Sequence[str], title: str) -> Any:
    """Return a figure of a boolean mask (Q, K): hidden cells are hatched."""
    return draw_matrix(mask, queries, keys, title, ("query", "key"), hidden=~mask, numbers=False)


def draw_values(x: Tensor) -> Any:
    """Return a figure of a matrix or vector without labels, as one picture: squares would make pages heavy."""
    x = x.reshape(-1, x.shape[-1]).float()
    with drawing(min(7.0, 0.2 * x.shape[1] + 1), min(5.0, 0.2 * x.shape[0] + 0.8)) as (figure, axes):
        axes.imshow(colours_of(x), interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        plain_axes(axes, "", "", "")
        return figure


def draw_counting(bits: Tensor, sines: Tensor) -> Any:
    """Return a figure of positions in binary digits (L, N), beside the sines (L, P) of some pairs of features."""
    panels = {"binary digits": (bits, "digit"), "sines": (sines, "pair of features")}
    with drawing(6.4, 4.4, 1, 2, width_ratios=[bits.shape[1], sines.shape[1]]) as (figure, both):
        for axes, (title, (x, label)) in zip(both, panels.items(), strict=True):
            fill_cells(axes, x)
            axes.set_xticks(range(x.shape[1]))
            axes.set_yticks(range(x.shape[0]))
            plain_axes(axes, title, label, "position")
        return figure


def draw_positions(table: Tensor, features: Sequence[int]) -> Any:
    """Return a figure of positions (L, D): a heat map of the sines, which are the even features, and
    some features as waves along the positions."""
    with drawing(7.2, 5.0, 2, sharex=True, height_ratios=[3, 2]) as (figure, (above, below)):
        sines = colours_of(table[:, 0::2]).transpose(1, 0, 2)
        above.imshow(sines, interpolation="nearest", aspect="auto")
        above.set_yticks(range(0, table.shape[1] // 2, 5))
        plain_axes(above, "Sines of each position: a column is a position", "", "pair of features")
        for feature, style in zip(features, ("-", "--", "-.", ":"), strict=False):
            colour = POSITIVE if style == "-" else INK
            below.plot(range(len(table)), table[:, feature], style, color=colour, lw=1.3)
            end = (len(table) - 1, table[-1, feature].item())
            below.annotate(f"feature {feature}", end, (6, 0), textcoords="offset points", color=colour, va="center")
        plain_axes(below, "Some features as waves", "position", "value")
        return figure


def draw_turns(frequencies: Mapping[str, float], pairs: Sequence[tuple[int, int]]) -> Any:
    """Return a figure of a circle per frequency, with a point for each position; `pairs` of positions, equally far
    apart, are joined by arcs."""
    with drawing(3.6 * len(frequencies), 3.9, 1, len(frequencies)) as (figure, circles):
        for axes, (name, frequency) in zip(circles, frequencies.items(), strict=True):
            _circle(axes, name)
            for position in range(max(map(max, pairs)) + 1):
                x, y = math.cos(position * frequency), math.sin(position * frequency)
                axes.plot(x, y, "o", color=INK, markersize=5)
                axes.text(1.14 * x, 1.14 * y, str(position), ha="center", va="center", color=INK)
            for (start, end), colour, radius in zip(pairs, (POSITIVE, NEGATIVE), (0.8, 0.62), strict=True):
                _arc(axes, start * frequency, end * frequency, radius, f"+{end - start}", colour)
        return figure


def draw_rotations(query: Tensor, key: Tensor, panels: Mapping[str, tuple[float, float]]) -> Any:
    """Return a figure of a query and a key (2,), in each panel turned by its two angles; the arc between them is
    marked."""
    with drawing(2.35 * len(panels), 2.7, 1, len(panels)) as (figure, circles):
        for axes, (name, angles) in zip(circles, panels.items(), strict=True):
            _circle(axes, name)
            ends = []
            for vector, angle, text, colour in zip((query, key), angles, "qk", (POSITIVE, NEGATIVE), strict=True):
                length, end = vector.norm().item(), math.atan2(vector[1], vector[0]) + angle
                ends.append(end)
                x, y = length * math.cos(end), length * math.sin(end)
                axes.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2})
                axes.text(x * 1.2, y * 1.2, text, ha="center", va="center", color=colour, fontsize=13)
            _arc(axes, min(ends), max(ends), 0.4, f"{math.degrees(abs(ends[1] - ends[0])):.0f}°", INK, 0.24)
        return figure


def _circle(axes: Any, title: str) -> None:
    """Draw the unit circle with its two axes, and nothing else around it."""
    angles = np.linspace(0, 2 * math.pi, 200)
    axes.plot(np.cos(angles), np.sin(angles), color=INK, lw=0.6)
    axes.plot([-1, 1], [0, 0], color=INK, lw=0.3)
    axes.plot([0, 0], [-1, 1], color=INK, lw=0.3)
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axes.axis("off")
    axes.set_title(title, color=INK, fontsize=10)


def _arc(axes: Any, start: float, end: float, radius: float, text: str, colour: str, out: float = -0.17) -> None:
    """Draw an arc from one angle to another, with an arrow at its end and a text farther `out`."""
    angles = np.linspace(start, end, 60)
    axes.plot(radius * np.cos(angles[:-3]), radius * np.sin(angles[:-3]), color=colour, lw=1.6)
    points = [(radius * math.cos(a), radius * math.sin(a)) for a in angles[[-6, -1]]]
    axes.annotate("", points[1], points[0], arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6})
    middle, away = (start + end) / 2, radius + out
    axes.text(
        away * math.cos(middle), away * math.sin(middle), text, ha="center", va="center", color=colour, fontsize=10
    )


def draw_attention_boxes(length: int, width: int, head: int, value: int) -> Any:
    """Return a diagram of attention with projections: boxes from x to the mean of values, each arrow with its shape."""
    boxes = {
        "x": (0, 1, f"x\n({length}, {width})"),
        "Wq": (1.5, 2, "linear Wq"),
        "Wk": (1.5, 1, "linear Wk"),
        "Wv": (1.5, 0, "linear Wv"),
        "q": (3, 2, f"Q ({length}, {head})\nlooks for"),
        "k": (3, 1, f"K ({length}, {head})\nis found by"),
        "v": (3, 0, f"V ({length}, {value})\ngives"),
        "s": (4.5, 1.5, f"scores QKᵀ/√E\n({length}, {length})"),
        "w": (6, 1.5, f"softmax: weights\n({length}, {length})"),
        "y": (7.5, 0.75, f"mean of values\n({length}, {value})"),
    }
    arrows = ["x Wq", "x Wk", "x Wv", "Wq q", "Wk k", "Wv v", "q s", "k s", "s w", "w y", "v y"]
    return _diagram(boxes, [tuple(arrow.split()) for arrow in arrows], (9.6, 2.9), ("Wq", "Wk", "Wv"))


def _diagram(
    boxes: Mapping[str, tuple[float, float, str]],
    arrows: Sequence[tuple[str, ...]],
    size: tuple[float, float],
    learned: Sequence[str],
) -> Any:
    """Return a figure of boxes at (x, y) with a text each, and arrows between them; those that learn are filled."""
    width, height = 1.15, 0.56
    with drawing(*size) as (figure, axes):
        for name, (x, y, text) in boxes.items():
            face = matplotlib.colors.to_rgba(WEIGHT, 0.35) if name in learned else "none"
            axes.add_patch(Rectangle((x, y - height / 2), width, height, facecolor=face, edgecolor=INK, lw=0.8))
            axes.text(x + width / 2, y, text, ha="center", va="center", color=INK, fontsize=9.5)
        for start, end in arrows:
            (x, y, _), (to_x, to_y, _) = boxes[start], boxes[end]
            arrow = {"arrowstyle": "->", "color": INK, "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (to_x, to_y), (x + width, y), arrowprops=arrow)
        axes.set_xlim(-0.05, max(x for x, _, _ in boxes.values()) + width + 0.05)
        axes.set_ylim(-0.4, max(y for _, y, _ in boxes.values()) + 0.4)
        axes.axis("off")
        return figure


def draw_heads(length: int, n_heads: int, width: int) -> Any:
    """Return a diagram of splitting (L, H·E) into heads, attention in each of them, and joining them again."""
    together, gap = n_heads * width, 3.2
    tall = n_heads * (length + 1) - 1
    with drawing(9.2, 0.27 * tall + 1.0) as (figure, axes):
        starts = {"one": 0.0, "split": together + gap, "mixed": together + 2 * gap + width}
        starts["joined"] = starts["mixed"] + width + gap
        middle = (tall - length) / 2
        for head in range(n_heads):
            colour, top = (POSITIVE, NEGATIVE, WEIGHT)[head % 3], head * (length + 1)
            for x in (starts["one"] + head * width, starts["joined"] + head * width):
                _block(axes, x, middle, length, width, colour)
            for name in ("split", "mixed"):
                _block(axes, starts[name], top, length, width, colour)
            y = top + length / 2
            _arrow(axes, (together + 0.2, middle + length / 2), (starts["split"] - 0.2, y))
            _arrow(axes, (starts["split"] + width + 0.2, y), (starts["mixed"] - 0.2, y))
            text = {"ha": "center", "color": INK, "fontsize": 8.5}
            axes.text(starts["mixed"] - gap / 2, y - 0.25, "attention", va="bottom", **text)
            _arrow(axes, (starts["mixed"] + width + 0.2, y), (starts["joined"] - 0.2, middle + length / 2))
            axes.text(starts["split"] + width / 2, top - 0.15, f"head {head}", va="bottom", **text)
        for name, shape, span in (("one", "(L, H·E)", together), ("split", "(H, L, E)", width)):
            axes.text(starts[name] + span / 2, tall + 0.3, shape, ha="center", va="top", color=INK)
        axes.text(starts["mixed"] + width / 2, tall + 0.3, "(H, L, E)", ha="center", va="top", color=INK)
        axes.text(starts["joined"] + together / 2, tall + 0.3, "(L, H·E)", ha="center", va="top", color=INK)
        axes.set_xlim(-0.2, starts["joined"] + together + 0.2)
        axes.set_ylim(tall + 1.4, -1.2)
        axes.set_aspect("equal")
        axes.axis("off")
        return figure


def _block(axes: Any, x: float, y: float, rows: int, columns: int, colour: str) -> None:
    """Draw a matrix of one colour whose upper left corner is at a point."""
    for i in range(rows):
        for j in range(columns):
            axes.add_patch(rectangle(x + j + 0.5, y + i + 0.5, 1, facecolor=colour, alpha=0.55, lw=0))
            axes.add_patch(rectangle(x + j + 0.5, y + i + 0.5, 1, facecolor="none", edgecolor=INK, lw=0.3))


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow between two points."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": INK, "lw": 0.9})


def rectangle(x: float, y: float, side: float, **style: Any) -> Any:
    """Return a square around a point."""
    return Rectangle((x - side / 2, y - side / 2), side, side, **style)


def plain_axes(axes: Any, title: str, x_label: str, y_label: str) -> None:
    """Give axes their labels, in the ink of the page."""
    axes.set_title(title, color=INK, fontsize=12, loc="left")
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    axes.tick_params(colors=INK, which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_linewidth(0.6)

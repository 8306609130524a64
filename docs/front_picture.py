"""Draw the first picture of the README and of docs/index.md, and write the page beside it: `make front`.

The model is one of the recipe dates, whose weights, rounded to 16 bits, are in docs/front. The picture is one head
before and after one key is blocked, as `find_date` of the book finds it: the weights of all queries, and the answers
below them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import glassformer
from glassformer.explain.edits.findings import Finding, make_finding
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.page.model_page import model_page
from glassformer.interop.check import n_alike

DOCS = Path(__file__).parent
SIZE, DOTS = (8.0, 5.7), 200
"""Inches, of which one is 100 pixels on the page; and dots an inch."""
CELL, LEFT, TOP = 0.236, (1.02, 4.72), 1.42
"""Inches: the side of a cell, the left edges of the two matrices and the upper edge of both."""
LIGHT = {"paper": "#ffffff", "ink": "#1f2328", "quiet": "#59636e", "rule": "#d1d9e0", "change": "#bc4c00"}
DARK = {"paper": "#0d1117", "ink": "#f0f6fc", "quiet": "#9198a1", "rule": "#3d444d", "change": "#f0883e"}
SCALES = {"light": ["#f3f6f5", "#cfe3dc", "#86bcab", "#3c9079", "#0b5a47"]}
SCALES["dark"] = ["#161d24", "#1d3b38", "#256a5b", "#3fa68a", "#a5ecd5"]


def finding_of(run: Any) -> tuple[Explanation, Explanation, Finding]:
    """Return an American date, the same read as British by one edit, and that edit; 03/05 first if it has one."""
    sys.path.append(str(DOCS / "book"))
    from tools import find_date

    dates = [(3, 5), *((m, d) for m in range(1, 13) for d in range(1, 13) if m != d)]
    (month, day), [edit] = find_date(run, dates)  # of several heads together there is no picture: train another seed
    us = run.explain(f"[en_US] {month:02}/{day:02}/2026")
    return us, explain(run, TraceRequest(us.request.text, edits=(edit,))), make_finding(us, [edit])


def picture(before: Explanation, after: Explanation, found: Finding, name: str) -> Figure:
    """Return the picture in a theme, "light" or "dark"."""
    colours = LIGHT if name == "light" else DARK
    edit = Edit.parse(found.edits[0])
    head, key = (int(part.partition(":")[2]) for part in edit.slice.split(";"))
    layer = int(edit.step.split(".")[1])
    figure = Figure(SIZE, facecolor=colours["paper"])
    pieces = [piece.replace("▁", "␣") for piece in before.streams[0].pieces]
    write(figure, 0.3, 0.36, "One key of one head decides how a date is read", colours["ink"], 15, weight="bold")
    where = f"Attention weights of head {head} in encoder layer {layer}; rows: queries, columns: keys"
    write(figure, 0.3, 0.66, where, colours["quiet"], 9.5)
    first, below = before.request.text.split()[1][:2], TOP + CELL * len(pieces)
    titles = f"as trained: {first} is the month", f"key {pieces[key]} blocked in this head: {first} is the day"
    changed = [a != b for a, b in zip(found.before, found.after, strict=True)]
    for left, title, e in zip(LEFT, titles, (before, after), strict=True):
        weights = e[edit.step.replace("scores", "weights")][head]
        blocked = key if e is after else None
        matrix(figure, (left, TOP), weights, pieces, blocked, colours | {"scale": SCALES[name]})
        write(figure, left, below + 0.34, title, colours["quiet"], 9.5)
        answer = e.answer["headline"]
        for i, character in enumerate(answer):
            colour = colours["change"] if e is after and changed[i] else colours["ink"]
            weight = "bold" if changed[i] else "normal"
            x, y = left + 0.16 * i, below + 0.68
            write(figure, x, y, character, colour, 18, weight=weight, family="DejaVu Sans Mono")
    write(figure, LEFT[1] - 0.62, below + 0.68, "→", colours["quiet"], 18)
    if all(control.after == found.before for control in found.control):
        note = "Blocked in any other head of this layer, the same key leaves the answer as it is."
        write(figure, LEFT[0], below + 1.02, note, colours["quiet"], 9.5)
    return figure


def matrix(
    figure: Figure,
    corner: tuple[float, float],
    weights: np.ndarray,
    pieces: list[str],
    blocked: int | None,
    colours: dict[str, Any],
) -> None:
    """Draw weights (Q, K) with tokens at both sides; the column of a blocked key is hatched."""
    left, top = corner
    scale = LinearSegmentedColormap.from_list("weights", colours["scale"])
    for row, column in np.ndindex(weights.shape):
        hatched = column == blocked
        at = place(figure, left + CELL * column, top + CELL * (row + 1))
        size = CELL * 0.93 / SIZE[0], CELL * 0.93 / SIZE[1]
        fill = colours["paper"] if hatched else scale(float(weights[row, column]))
        edge = colours["quiet"] if hatched else fill
        hatch = "/////" if hatched else None
        cell = Rectangle(at, *size, facecolor=fill, edgecolor=edge, hatch=hatch, linewidth=0.4)
        figure.add_artist(cell)
    for i, piece in enumerate(pieces):
        middle = CELL * (i + 0.46)
        write(figure, left - 0.07, top + middle + 0.01, piece, colours["ink"], 8.5, ha="right", va="center_baseline")
        turned = {"rotation": 90 if len(piece) > 1 else 0, "va": "bottom", "ha": "center"}
        colour = colours["change"] if i == blocked else colours["ink"]
        write(figure, left + middle, top - 0.05, piece, colour, 8.5, **turned)


def place(figure: Figure, x: float, y: float) -> tuple[float, float]:
    """Return inches from the upper left corner as shares of the figure from the lower left."""
    across, down = figure.get_size_inches()
    return x / across, 1 - y / down


def write(figure: Figure, x: float, y: float, text: str, colour: str, points: float, **how: Any) -> None:
    """Write text at a place in inches from the upper left corner."""
    settings = {"family": "DejaVu Sans", "parse_math": False} | how
    figure.text(*place(figure, x, y), text, color=colour, fontsize=points, **settings)


def main() -> None:
    """Write both pictures, and the page that holds the model."""
    run = glassformer.load(DOCS / "front/dates")
    before, after, found = finding_of(run)
    for name in SCALES:
        path = DOCS / "images" / f"front-{name}.png"
        picture(before, after, found, name).savefig(path, dpi=DOTS, metadata={"Software": None})
    page, _ = model_page(run, [before.request], n_alike)
    (DOCS / "_static/front.html").write_text(page, "utf-8")


if __name__ == "__main__":
    main()

"""Make chapters lighter: steps and large figures that cells embed become files, and code loses marks without a colour.

A step's output holds a whole page in `srcdoc`; as files, all share one script and one style sheet. A figure is drawn in
the colour of the page's text. A file cannot know that colour, so there are two, one for light and one for dark pages,
of which the theme shows one.
"""

from __future__ import annotations

import html
import re
from itertools import count
from pathlib import Path
from typing import Any

from glassformer.explain.page.saved_page import WHOLE, asset

ASSETS = "_static/glassformer"
FRAME = re.compile(r'<iframe class="step-frame" data-address="([^"]*)" srcdoc="([^"]*)"')
FIGURE = re.compile(r'(?<=<div class="output text_html">)<svg role="img" aria-label="([^"]*)".*?</svg>', re.DOTALL)
LARGE = 8_000
"""From this number of characters on a figure is a file."""
INKS = {"light": "#000000", "dark": "#cfd0d0"}
"""The theme's colours of text."""
UNCOLOURED = re.compile(r'<span class="[npw]">([^<]*)</span>')
"""A name, punctuation or a space in code: their colour is that of the code around them."""


def lighten_pages(app: Any, error: Exception | None) -> None:
    """Write the chapters again, lighter; a handler of Sphinx's event `build-finished`."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    frames, figures, assets = out / "book" / "frames", out / "book" / "figures", out / ASSETS
    for folder in (frames, figures, assets):
        folder.mkdir(parents=True, exist_ok=True)
    for name in (WHOLE, "app.css"):
        (assets / name).write_text(asset(name), encoding="utf-8")
    for page in sorted((out / "book").glob("*.html")):
        text = page.read_text(encoding="utf-8")
        moved = move_figures(move_frames(text, page.stem, frames), page.stem, figures)
        page.write_text(UNCOLOURED.sub(r"\1", moved), encoding="utf-8")


def move_frames(text: str, stem: str, folder: Path) -> str:
    """Return a page whose steps are files in a folder, which is written."""
    number = count(1)

    def move(match: re.Match[str]) -> str:
        path = folder / f"{stem}-{next(number)}.html"
        path.write_text(html.unescape(match[2]), encoding="utf-8")
        return f'<iframe class="step-frame" src="frames/{path.name}{match[1]}"'

    return FRAME.sub(move, text)


def move_figures(text: str, stem: str, folder: Path) -> str:
    """Return a page whose large figures are files in a folder, which is written; a figure with links stays."""
    number = count(1)

    def move(match: re.Match[str]) -> str:
        if len(match[0]) < LARGE or "<a " in match[0]:
            return match[0]
        images, n = [], next(number)
        for theme, ink in INKS.items():
            path = folder / f"{stem}-{n}-{theme}.svg"
            path.write_text(match[0].replace("currentColor", ink), encoding="utf-8")
            source = f'src="figures/{path.name}" loading="lazy"'  # lazy: that of the other theme is never read
            images.append(f'<img class="figure only-{theme}" {source} alt="{match[1]}" />')
        return "\n".join(images)

    return FIGURE.sub(move, text)

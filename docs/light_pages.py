"""Make chapters lighter: large figures become files, and code loses the marks of tokens that have no colour.

A figure is drawn in the colour of the page's text. A file cannot know that colour, so there are two, one for light and
one for dark pages, of which the theme shows one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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
    folder = Path(app.outdir) / "book" / "figures"
    folder.mkdir(exist_ok=True)
    for page in sorted(folder.parent.glob("*.html")):
        text = page.read_text(encoding="utf-8")
        lighter = UNCOLOURED.sub(r"\1", move_figures(text, page.stem, folder))
        if lighter != text:
            page.write_text(lighter, encoding="utf-8")


def move_figures(text: str, stem: str, folder: Path) -> str:
    """Return a page whose large figures are files in a folder, which is written; a figure with links stays."""
    n_moved = 0

    def move(match: re.Match[str]) -> str:
        nonlocal n_moved
        if len(match[0]) < LARGE or "<a " in match[0]:
            return match[0]
        n_moved += 1
        images = []
        for theme, ink in INKS.items():
            path = folder / f"{stem}-{n_moved}-{theme}.svg"
            path.write_text(match[0].replace("currentColor", ink), encoding="utf-8")
            source = f'src="figures/{path.name}" loading="lazy"'  # lazy: that of the other theme is never read
            images.append(f'<img class="figure only-{theme}" {source} alt="{match[1]}" />')
        return "\n".join(images)

    return FIGURE.sub(move, text)

"""Move the steps that cells embed into files of their own, which share one script and one style sheet.

A cell's output holds a whole page in `srcdoc`. A chapter would grow by it, and its script would be repeated in each.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from glassformer.explain.page.responses import WHOLE, asset

FRAME = re.compile(r'<iframe class="step-frame" data-address="([^"]*)" srcdoc="([^"]*)"')
ASSETS = "_static/glassformer"


def write_frames(app: Any, error: Exception | None) -> None:
    """Write each frame of the book into a folder next to its chapter; a handler of Sphinx's event `build-finished`."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    (out / ASSETS).mkdir(parents=True, exist_ok=True)
    for name in (WHOLE, "app.css"):
        (out / ASSETS / name).write_text(asset(name), encoding="utf-8")
    folder = out / "book" / "frames"
    folder.mkdir(exist_ok=True)
    for page in sorted((out / "book").glob("*.html")):
        text = page.read_text(encoding="utf-8")
        moved = move_frames(text, page.stem, folder)
        if moved != text:
            page.write_text(moved, encoding="utf-8")


def move_frames(text: str, stem: str, folder: Path) -> str:
    """Return a page whose frames are files in a folder, which is written."""
    found: list[Path] = []

    def move(match: re.Match[str]) -> str:
        path = folder / f"{stem}-{len(found) + 1}.html"
        path.write_text(html.unescape(match[2]), encoding="utf-8")
        found.append(path)
        return f'<iframe class="step-frame" src="frames/{path.name}{match[1]}"'

    return FRAME.sub(move, text)

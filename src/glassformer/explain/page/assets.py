"""Read the built page inside the package, which `make web` writes from web/."""

from __future__ import annotations

from importlib.resources import files

from glassformer.errors import GlassformerError

CONTENT_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "shared.js": "text/javascript; charset=utf-8",
    "later.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}
"""The served files. app.js loads shared.js at once, and later.js when a screen outside the first view is opened."""
WHOLE = "whole.js"
"""All scripts in one, for a page without a server."""


def asset(name: str) -> str:
    """Return the text of one of the page's files."""
    try:
        return (files("glassformer.explain.page") / "static" / name).read_text(encoding="utf-8")
    except OSError as error:
        raise GlassformerError(
            f"the page's file {name} is missing from this installation", "in a source checkout: make web"
        ) from error

"""The built page inside the package: a few files that `make web` writes from the sources in web/.

They are read anew for every request, as they are small; what they hold is the front end's business.
"""

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
"""What is served. app.js loads shared.js at once, and later.js when a screen is opened that is not in the first view."""
WHOLE = "whole.js"
"""All scripts in one, for a page without a server."""


def asset(name: str) -> str:
    """The text of one of the page's files.

    Raises:
        GlassformerError: it was not built.
    """
    try:
        return (files("glassformer.explain.page") / "static" / name).read_text(encoding="utf-8")
    except OSError as error:
        raise GlassformerError(
            f"the page's file {name} is missing from this installation", "in a source checkout: make web"
        ) from error

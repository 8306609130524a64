"""How an explanation shows itself in a notebook: as one line and a picture, or, when asked, as the whole page.

A cell that ends in an explanation should cost nothing: no words are weighed for it, and the notebook does not
grow by megabytes. The page comes in a frame: it is `srcdoc` with scripts allowed and nothing else: no server,
no widgets, no network. A front end that shows no HTML or no pictures takes the line.
"""

from __future__ import annotations

import base64
import html
from io import BytesIO
from typing import Any

from glassformer.errors import GlassformerError
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.explanation_plots import ExplanationPlots
from glassformer.explain.page.saved_page import saved_page_html

HEIGHT = 720
"""Pixels of the frame."""
SECONDS = 3.0
"""Spent on weighing words: a cell should answer soon."""
MAX_BYTES = 6_000_000
"""A notebook keeps every output it shows; the file that `save` writes may be larger."""


class NotebookPage:
    """The page of an explanation as what a cell shows: made when it is shown."""

    def __init__(self, explanation: ExplanationData) -> None:
        self._explanation = explanation

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self._explanation), "text/html": frame(self._explanation)}


def mimebundle(explanation: ExplanationData) -> dict[str, Any]:
    """What Jupyter asks an explanation for: its forms by MIME type, the picture in base64."""
    image = base64.b64encode(picture(explanation)).decode("ascii")
    return {"text/plain": repr(explanation), "image/png": image}


def frame(explanation: ExplanationData) -> str:
    """The page in an `<iframe>`; where it is not built, a sentence that says so."""
    try:
        page, _ = saved_page_html(explanation, max_bytes=MAX_BYTES, seconds=SECONDS)
    except GlassformerError as error:
        return f"<p>{html.escape(error.message)} {html.escape(error.hint)}</p>"
    return (
        f'<iframe title="{html.escape(repr(explanation))}" sandbox="allow-scripts" width="100%" '
        f'height="{HEIGHT}" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
    )


def picture(explanation: ExplanationData) -> bytes:
    """A PNG of what is here already: the cross attention of a translation, the attention of any other model."""
    crosses = any(id.endswith(".cross.weights") for id in explanation.records)
    figure = ExplanationPlots(explanation).attention(block="cross" if crosses else "self")
    buffer = BytesIO()
    with fs.style():
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()

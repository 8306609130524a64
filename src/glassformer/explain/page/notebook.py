"""Show an explanation in a notebook: by default one line and a picture, on request the whole page.

A cell that ends in an explanation is cheap: it computes no attributions and adds no megabytes to the notebook. The page
is shown in an `<iframe srcdoc>` that allows only scripts, without a server or network.
"""

from __future__ import annotations

import base64
import html
from io import BytesIO
from typing import Any

from glassformer.errors import GlassformerError
from glassformer.explain.explanation import Explanation
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.explanation_plots import ExplanationPlots
from glassformer.explain.page.saved_page import saved_page_html

HEIGHT = 720
"""Pixels of the frame."""
SECONDS = 3.0
"""Time limit for attributions."""
MAX_BYTES = 6_000_000
"""Maximum size of the page, less than in `save`, since a notebook stores its outputs."""


class NotebookPage:
    """The page of an explanation as the output of a cell, made when it is displayed."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self._explanation), "text/html": page_iframe(self._explanation)}


def mimebundle(explanation: Explanation) -> dict[str, Any]:
    """Return the representations of an explanation by MIME type, as Jupyter requests them."""
    image = base64.b64encode(attention_png(explanation)).decode("ascii")
    return {"text/plain": repr(explanation), "image/png": image}


def page_iframe(explanation: Explanation) -> str:
    """Return the page in an `<iframe>`, or an error message if the page is not built."""
    try:
        page, _ = saved_page_html(explanation, max_bytes=MAX_BYTES, seconds=SECONDS, parameters=True)
    except GlassformerError as error:
        return f"<p>{html.escape(' '.join(filter(None, (error.message, error.hint))))}</p>"
    return (
        f'<iframe title="{html.escape(repr(explanation))}" sandbox="allow-scripts" width="100%" '
        f'height="{HEIGHT}" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
    )


def attention_png(explanation: Explanation) -> bytes:
    """Return a PNG of the cross-attention of a translation, or of the self-attention of other models."""
    crosses = any(step.block == "cross" for step in explanation.records.steps.values())
    figure = ExplanationPlots(explanation).attention(block="cross" if crosses else "self")
    buffer = BytesIO()
    with fs.style():
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()

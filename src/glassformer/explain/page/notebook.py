"""How an explanation shows itself in a notebook: the whole page in a frame, a picture beside it, and one line.

The frame is `srcdoc` with scripts allowed and nothing else: no server, no widgets, no network. A front end
that shows no HTML takes the picture, one that shows no pictures takes the line.
"""

from __future__ import annotations

import base64
import html
from io import BytesIO
from typing import Any, Protocol, runtime_checkable

from glassformer.errors import GlassformerError
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.explanation_plots import Drawn, ExplanationPlots
from glassformer.explain.page.report import Shown, report_html

HEIGHT = 720
"""Pixels of the frame."""
SECONDS = 3.0
"""Spent on weighing words: a cell should answer soon."""
MAX_BYTES = 6_000_000
"""A notebook keeps every output it shows; the file that `save` writes may be larger."""


@runtime_checkable
class Displayed(Shown, Drawn, Protocol):
    """What is needed of an explanation."""


def mimebundle(explanation: Displayed) -> dict[str, Any]:
    """What Jupyter asks an object for: its forms by MIME type, the picture in base64."""
    return {
        "text/plain": repr(explanation),
        "image/png": base64.b64encode(picture(explanation)).decode("ascii"),
        "text/html": frame(explanation),
    }


def frame(explanation: Displayed) -> str:
    """The page in an `<iframe>`; where it is not built, a sentence that says so."""
    try:
        page, _ = report_html(explanation, max_bytes=MAX_BYTES, seconds=SECONDS)
    except GlassformerError as error:
        return f"<p>{html.escape(error.message)} {html.escape(error.hint)}</p>"
    return (
        f'<iframe title="{html.escape(repr(explanation))}" sandbox="allow-scripts" width="100%" '
        f'height="{HEIGHT}" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
    )


def picture(explanation: Displayed) -> bytes:
    """A PNG, soon made: alignment of a translation, attention of any other model."""
    translated = explanation.subject.task.name == "translate" and len(explanation.streams[-1]) > 1
    plot = ExplanationPlots(explanation)
    figure = plot.alignment() if translated else plot.attention()
    buffer = BytesIO()
    with fs.style():
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()

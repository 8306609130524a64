"""Show the page in a notebook, as a frame that is the output of a cell."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import Any

from glassformer.errors import GlassformerError
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.subject import Subject

NOTEBOOK_BYTES, NOTEBOOK_SECONDS, NOTEBOOK_HEIGHT = 6_000_000, 3.0, 720
"""In a notebook: size of the page, since it stores its outputs; time limit of attributions; pixels of the frame."""
REPLAY_SECONDS = 20.0
"""Time limit of the answers of all snapshots."""


class NotebookPage:
    """The page as the output of a cell, made when it is displayed.

    Args:
        shown: what it shows, as `repr` says it.
        frame: makes the HTML.
    """

    def __init__(self, shown: object, frame: Callable[[], str]) -> None:
        self._shown, self._frame = shown, frame

    def __repr__(self) -> str:
        return f"<Page of {self._shown!r}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self._shown), "text/html": self._frame()}


def explanation_page(explanation: Explanation) -> NotebookPage:
    """Return the page of an explanation."""
    return NotebookPage(explanation, partial(page_iframe, explanation))


def training_page(subject: Subject) -> NotebookPage:
    """Return the page of a run's training so far: its curves, and the answers of its snapshots."""
    from glassformer.explain.page.replay import replay_html
    from glassformer.explain.watch.training import Training

    def page() -> str:
        limits: Any = {"seconds": REPLAY_SECONDS, "max_bytes": NOTEBOOK_BYTES}
        return replay_html(subject, Training(subject.path), **limits)[0]

    return NotebookPage(subject, lambda: iframe(f"The training of {subject!r}", page))


def page_iframe(explanation: Explanation) -> str:
    """Return the page in an `<iframe>` that allows only scripts, or an error message if the page is not built."""
    limits: Any = {"max_bytes": NOTEBOOK_BYTES, "seconds": NOTEBOOK_SECONDS, "parameters": True}
    return iframe(repr(explanation), lambda: saved_page_html(explanation, **limits)[0])


def iframe(title: str, make: Callable[[], str]) -> str:
    """Return a page in an `<iframe>` that allows only scripts, or the message of the error that making it raised."""
    try:
        page = make()
    except GlassformerError as error:
        return f"<p>{html.escape(' '.join(filter(None, (error.message, error.hint))))}</p>"
    return (
        f'<iframe title="{html.escape(title)}" sandbox="allow-scripts" width="100%" '
        f'height="{NOTEBOOK_HEIGHT}" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
    )

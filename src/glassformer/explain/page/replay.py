"""Write a training as one HTML file."""

from __future__ import annotations

from typing import Any

from glassformer.explain.explanation import explain
from glassformer.explain.page.saved_page import MAX_BYTES, saved_page_html
from glassformer.explain.subject import Subject
from glassformer.explain.watch.replay import REPLAY_SECONDS, saved_training
from glassformer.explain.watch.training import Training

BLANK = "a"
"""The text of the other screens where the run has none."""


def replay_html(
    subject: Subject, training: Training, seconds: float = REPLAY_SECONDS, max_bytes: int = MAX_BYTES
) -> tuple[str, list[str]]:
    """Return the page that begins with the training, and what it lacks, a sentence each.

    Its other screens show the first of the texts.
    """
    dropped = list[str]()
    saved = saved_training(subject, training, dropped, seconds=seconds)
    first = explain(subject, next(iter(saved["texts"]), BLANK))
    settings: Any = {"seconds": seconds, "max_bytes": max_bytes}
    page, lacks = saved_page_html(first, view={"view": "#/training", "training": saved}, **settings)
    return page, [*dropped, *lacks]

"""A training as data of a saved page: its curves, and what the model answered at each snapshot."""

from __future__ import annotations

import time
from typing import TypedDict

from glassformer.errors import GlassformerError
from glassformer.explain.subject import MODEL, Subject
from glassformer.explain.watch.probes import ProbeAnswer, ProbeRequest, default_texts, probe
from glassformer.explain.watch.training import Training, TrainingNow

REPLAY_SECONDS = 120.0
"""Time limit of all answers, since a model may be large and its texts long."""


class SavedTraining(TypedDict):
    """The training in a saved page."""

    now: TrainingNow
    texts: list[str]
    answers: list[ProbeAnswer]


def saved_training(
    subject: Subject,
    training: Training,
    dropped: list[str],
    texts: list[str] | None = None,
    seconds: float = REPLAY_SECONDS,
) -> SavedTraining:
    """Return the curves, and the answers to a few texts at each snapshot; what is missing is added to `dropped`."""
    now = training.now()
    names = [each["name"] for each in now["snapshots"]] + ([MODEL] if now["has_model"] else [])
    if texts is None:
        found = default_texts(subject)
        texts = found["texts"]
        if found["missing"]:
            dropped.append(found["missing"])
    answers, deadline = list[ProbeAnswer](), time.monotonic() + seconds
    pairs = [(text, name) for name in names for text in texts]
    for i, (text, name) in enumerate(pairs):
        if time.monotonic() > deadline:
            dropped.append(f"Training: {len(pairs) - i} of {len(pairs)} answers are left out, as they take long.")
            break
        try:
            answers.append(probe(subject, ProbeRequest(text, name)))
        except GlassformerError as error:
            dropped.append(f"Training: {name} gives no answer: {error.message}.")
    return {"now": now, "texts": texts, "answers": answers}

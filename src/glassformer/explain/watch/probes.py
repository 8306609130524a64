"""Ask the model at each snapshot about a few texts: its answer, how probable it finds it, and one attention map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, TypedDict

import numpy as np
from msgspec import Meta

from glassformer.errors import GlassformerError
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.one_label import looked_at, of_same_label
from glassformer.explain.request import Request, ShortText, TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject, examples
from glassformer.runs.run_data import load_run_data

MAX_PROBES = 8
N_DEFAULT = 4
MAX_PROBE_CHARACTERS = 1000
MAX_MAP_TOKENS = 48
"""Longer texts have no map here, which would be too fine to read; the screen Attention has it."""


@dataclass(frozen=True)
class ProbeRequest(Request):
    """A text, and the snapshot that answers."""

    text: Annotated[str, Meta(max_length=MAX_PROBE_CHARACTERS)]
    checkpoint: ShortText


class AttentionMap(TypedDict):
    """The attention weights of one layer, averaged over its heads."""

    step: str
    """Id of the step."""
    rows: list[str]
    """Tokens that attend."""
    columns: list[str]
    """Tokens that are attended to."""
    weights: list[list[float]]


class ProbeAnswer(TypedDict):
    """What the model at a snapshot makes of a text."""

    text: str
    checkpoint: str
    headline: str
    detail: str
    probability: float | None
    """Of the answer, that of all its tokens together; null: of a bare encoder, or of masked tokens."""
    per_token: float | None
    """Of a continuation the geometric mean of the probabilities of its tokens; null: of any other answer."""
    map: AttentionMap | None
    """null: the text is too long to draw."""


class ProbeTexts(TypedDict):
    """Texts of the run that the page begins with (GET /api/probes)."""

    texts: list[str]
    missing: str | None
    """Why there are none, a sentence; null: there are."""


def probe(subject: Subject, request: ProbeRequest) -> ProbeAnswer:
    """Return the answer of a snapshot to a text; errors as of `explain`.

    The label or word that is looked at is chosen by the subject's own weights, so that it is the same at each snapshot.
    """
    view, _ = looked_at(subject, TraceRequest(request.text))
    at_snapshot = of_same_label(TraceRequest(request.text, checkpoint=request.checkpoint), view)
    explanation = explain(subject, at_snapshot)
    probability, per_token = answer_probabilities(explanation)
    return {
        "text": request.text,
        "checkpoint": request.checkpoint,
        "headline": explanation.answer["headline"],
        "detail": explanation.answer["detail"],
        "probability": probability,
        "per_token": per_token,
        "map": attention_map(explanation),
    }


def answer_probabilities(explanation: Explanation) -> tuple[float | None, float | None]:
    """Return `probability` and `per_token` of a `ProbeAnswer`: the product over all tokens, and its geometric mean."""
    predictions = explanation.predictions
    if explanation.is_classifier:
        return math.exp(predictions[0].top[0].log_prob), None
    tokens = [predictions[i].actual for i in explanation.generated]
    logs = [token.log_prob for token in tokens if token is not None]
    if not logs or explanation.generation.masked is not None:
        return None, None
    return math.exp(sum(logs)), math.exp(sum(logs) / len(logs)) if len(explanation.streams) == 1 else None


def attention_map(explanation: Explanation) -> AttentionMap | None:
    """Return the map of the last layer: of a translation cross-attention, of others self-attention."""
    maps = [step for step in explanation.records.steps.values() if step.site == "weights"]
    chosen = [step for step in maps if step.block == "cross"] or maps
    if not chosen or max(chosen[-1].shape[-2:]) > MAX_MAP_TOKENS:
        return None
    weights = explanation.tensor(chosen[-1].id).mean(axis=0)
    row, column = chosen[-1].axes[-2:]
    streams = {stream.name: stream for stream in explanation.streams}
    return {
        "step": chosen[-1].id,
        "rows": _pieces(streams.get(row.stream or ""), weights.shape[0]),
        "columns": _pieces(streams.get(column.stream or ""), weights.shape[1]),
        "weights": [[round(float(weight), 3) for weight in line] for line in np.nan_to_num(weights)],
    }


def default_texts(subject: Subject) -> ProbeTexts:
    """Return a few texts: those the run was evaluated on, or else of its validation split, read again."""
    config, is_cut = subject.task.config, subject.task.running_text
    if texts := examples(subject)[:N_DEFAULT]:
        return {"texts": [from_border(text) if is_cut else text for text in texts], "missing": None}
    try:
        data = load_run_data(subject.path, subject.task.schema, config.data, allow_changed=False)
    except (GlassformerError, OSError) as error:
        message = error.message if isinstance(error, GlassformerError) else str(error)
        return {"texts": [], "missing": f"The texts of this run cannot be read: {message}"}
    texts = [text for text in map(str, data.valid.text[:200]) if text.strip()]
    if subject.task.tokenizer.separator:  # half of a pair is none
        texts = [text for text in texts if len(text) <= MAX_PROBE_CHARACTERS]
    short = sorted(dict.fromkeys(texts), key=len)[:N_DEFAULT]
    short = [from_border(text[:MAX_PROBE_CHARACTERS]) if is_cut else text[:MAX_PROBE_CHARACTERS] for text in short]
    return {"texts": short, "missing": None if short else "The validation split of this run holds no text."}


def from_border(text: str) -> str:
    """Return a text from its second line on, or its second word where that leaves less than half of it.

    Running text is cut into splits at any character, so that its first line and word need not be whole.
    """
    for mark in ("\n", " "):
        rest = text.partition(mark)[2].lstrip()
        if 2 * len(rest) >= len(text):
            return rest
    return text


def _pieces(stream: Stream | None, n: int) -> list[str]:
    return list(stream.pieces[:n]) if stream is not None else [str(i + 1) for i in range(n)]

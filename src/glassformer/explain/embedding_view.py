"""Show where a token's embedding lies: its nearest rows by cosine, and a projection of both on a plane.

The rows are those of the table, before positions, n-grams and any layer. Two dimensions never show all of it, so the
share of the variance that they show goes with the points.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.record_store import get_parameter
from glassformer.explain.streams import Stream

N_NEIGHBOURS = 10
MAX_OTHERS = 20
"""Maximum other tokens of the text that are shown with them, the first distinct ones."""


class EmbeddingPoint(TypedDict):
    """A token on the plane."""

    piece: str
    x: float
    y: float
    kind: str
    """"token", the chosen one; "neighbour"; or "text", another token of the text."""


class Neighbour(TypedDict):
    """A token whose row points in nearly the same direction."""

    piece: str
    cosine: float


class EmbeddingView(TypedDict):
    """Where one token's row lies in the table."""

    piece: str
    neighbours: list[Neighbour]
    """The nearest by cosine, nearest first, without special tokens."""
    points: list[EmbeddingPoint]
    explained: float
    """Share of the points' variance that the plane shows, from 0 to 1."""
    n_rows: int
    """Rows that were compared."""


def embedding_view(explanation: Explanation, id: str, row: int) -> EmbeddingView:
    """Return where the embedding of one token of the text lies."""
    stream = next((stream for stream, step in lookups_of(explanation) if step == id), None)
    if stream is None:
        raise UsageError(f"{id[:80]!r} looks up no embeddings of tokens", "name a step such as 'embedding.rows'")
    if not 0 <= row < len(stream):
        raise UsageError(f"row must be from 0 to {len(stream) - 1}, not {row}")
    table = (
        get_parameter(explanation.subject.model, explanation.records.steps[id].params["weight"]).detach().float().cpu()
    )
    tokenizer, token = explanation.subject.task.tokenizer, stream.ids[row]
    cosines = torch.nn.functional.cosine_similarity(table[token], table[: tokenizer.vocab_size], dim=-1)
    without_text = {*tokenizer.without_text}
    cosines[[token, *without_text]] = -2.0  # below every cosine
    n_compared = int((cosines >= -1.5).sum())
    near = cosines.argsort(descending=True, stable=True)[: min(N_NEIGHBOURS, n_compared)].tolist()
    others = [i for i in dict.fromkeys(stream.ids) if i not in {token, *near} | without_text][:MAX_OTHERS]
    ids, kinds = [token, *near, *others], ["token"] + ["neighbour"] * len(near) + ["text"] * len(others)
    points, explained = principal_plane(table[ids])
    pieces = tokenizer.tokens(ids)
    return {
        "piece": pieces[0],
        "neighbours": [{"piece": tokenizer.tokens([i])[0], "cosine": float(cosines[i])} for i in near],
        "points": [
            {"piece": piece, "x": float(x), "y": float(y), "kind": kind}
            for piece, (x, y), kind in zip(pieces, points, kinds, strict=True)
        ],
        "explained": explained,
        "n_rows": n_compared,
    }


def lookups_of(explanation: Explanation) -> list[tuple[Stream, str]]:
    """Return the streams of an explanation with the step that looks up the embeddings of their tokens."""
    return [
        (stream, id)
        for id, step in explanation.records.steps.items()
        if step.site.partition(":")[0] == "rows"
        for stream in explanation.streams
        if stream.name == step.axes[0].stream
    ]


def principal_plane(vectors: Float[Tensor, "N D"]) -> tuple[Float[np.ndarray, "N 2"], float]:
    """Return points on the plane in which the vectors differ most, and the share of their variance that it shows.

    The sign of an axis is chosen so that its largest value is positive: the same vectors always give the same points.
    """
    x = vectors.double().numpy()
    x = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    points = np.zeros((len(x), 2))
    n = min(2, len(s))
    points[:, :n] = u[:, :n] * s[:n]
    largest = np.abs(points).argmax(axis=0)
    points *= np.where(points[largest, [0, 1]] < 0, -1.0, 1.0)
    total = float((s**2).sum())
    return points, float((s[:n] ** 2).sum()) / total if total > 0 else 1.0

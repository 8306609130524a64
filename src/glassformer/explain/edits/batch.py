"""Apply different edits to the rows of one batch, which all hold the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.edits.apply import Edits, check_whole, edits_on
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import readable, rows_of
from glassformer.explain.trace import trace
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.utils.cancellation import check_cancelled
from glassformer.utils.device import tuned

BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch."""


class BatchedEdits:
    """A tap for a batch: each row has edits of its own.

    Attributes:
        ids: ids of the steps that any row wants.
    """

    def __init__(self, rows: Sequence[Edits]) -> None:
        self.rows = list(rows)
        self.ids = set().union(*(row.ids for row in rows))

    def __call__(self, id: str, x: Tensor) -> Tensor:
        """Return the tensor to use for a step."""
        step = id.partition("@")[0]
        if len(x) != len(self.rows):
            raise UsageError(f"{step} has no batch axis, so texts of one batch share it", "edit it with what_if")
        parts = [row(id, part) if step in row.ids else part for row, part in zip(self.rows, x.split(1), strict=True)]
        return torch.cat(parts)


def edited_logits(
    explanation: Explanation, variants: Sequence[Sequence[str]], other: Explanation | None = None
) -> Float[Tensor, "N P C"]:
    """Return the logits of one text under each of several sets of edits, in double precision."""
    check_whole(explanation, other)
    logits = torch.cat(list(_batches(explanation, variants, other))).double()
    return logits[:, None] if logits.dim() == 2 else logits


def base_logits(explanation: Explanation) -> Float[Tensor, "P C"]:
    """Return the logits of a text without further edits, in double precision."""
    check_whole(explanation)
    return rows_of(explanation.records["logits"].value.double())


def _batches(
    explanation: Explanation, variants: Sequence[Sequence[str]], other: Explanation | None
) -> Iterator[Tensor]:
    subject = explanation.subject
    size = max(1, BATCH_TOKENS // sum(len(stream) for stream in explanation.streams))
    for start in range(0, len(variants), size):
        check_cancelled()
        rows = [edits_on(explanation, v, other) for v in variants[start : start + size]]
        inputs = {name: _repeated(value, len(rows)) for name, value in explanation.model_inputs.items()}
        with tuned(subject.device), torch.no_grad(), trace(subject.model, lambda _: False, tap=BatchedEdits(rows)):
            yield exact_forward(subject.model, **inputs)
        for row in rows:
            row.check_fired()


def _repeated(value: Any, n: int) -> Any:
    """Return an argument of the model for a batch of n equal texts."""
    if isinstance(value, NgramBatch):
        return replace(value, index=value.index.expand(n, -1))
    return value.expand(n, *value.shape[1:])


@dataclass(frozen=True)
class VariantEffect:
    """What one set of edits changes in the prediction of a text, in few numbers."""

    edits: list[str]
    """The edits."""
    change: float
    """Change of the log-probability of what is predicted without edits, summed over the predictions, in nats."""
    n_changed: int
    """Number of predictions that differ."""
    position: int | None
    """Position where the log-probability falls most; null for a classifier."""
    before: str
    """The most probable class or token there without edits."""
    after: str
    """The same with edits."""


def variant_effects(
    explanation: Explanation, variants: Sequence[Sequence[str]], other: Explanation | None = None
) -> list[VariantEffect]:
    """Return the effects of several sets of edits; arguments and errors as in `edited_logits`."""
    if not variants:
        return []
    chosen = explanation.answered
    base = base_logits(explanation)[chosen].log_softmax(dim=-1)
    after = edited_logits(explanation, variants, other)[:, chosen].log_softmax(dim=-1)
    predictions = [explanation.predictions[i] for i in chosen]
    change = followed(explanation, after) - followed(explanation, base)
    best = after.argmax(dim=-1)
    differs = best != base.argmax(dim=-1)
    worst = change.argmin(dim=-1)
    return [
        VariantEffect(
            edits=list(edits),
            change=float(change[row].sum()),
            n_changed=int(differs[row].sum()),
            position=predictions[at].position,
            before=predictions[at].top[0].piece,
            after=readable(explanation.subject.task, int(best[row, at])),
        )
        for row, (edits, at) in enumerate(zip(variants, worst.tolist(), strict=True))
    ]


def followed(explanation: Explanation, log_probs: Float[Tensor, "... P C"]) -> Float[Tensor, "... P"]:
    """Return the log-probabilities of the classes or tokens that are predicted without edits."""
    chosen = explanation.answered
    predictions = [explanation.predictions[i] for i in chosen]
    targets = torch.tensor([(p.actual or p.top[0]).id for p in predictions], device=log_probs.device)
    return log_probs.gather(-1, targets.expand(log_probs.shape[:-1])[..., None])[..., 0]

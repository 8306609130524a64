"""What is followed of a text, as one number for each prediction, and how edits change it.

A `Measure` is made once from an explanation: log-probabilities of its answer, the logit difference of two classes or
tokens, or a number. Sweeps, contributions, attributions and findings measure with it; `effects` measures the same text
under each of several sets of edits, in a few batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.edits.apply import Edits, check_whole, edits_on
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import NUMBER, readable, rows_of
from glassformer.explain.trace import trace
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.tasks import Task
from glassformer.text.answers import written_number
from glassformer.utils.device import tuned
from glassformer.utils.process_settings import check_cancelled

Unit = Literal["nats", "number"]
"""Of what is followed: log-probabilities, or a number, in the units of the training numbers."""
MEAN = "mean of the training numbers"
"""What a number is compared with."""


@dataclass(frozen=True)
class Measure:
    """What is followed.

    Attributes:
        rows: the predictions, as rows of the logits.
        ids: for each the class or token whose log-probability is followed.
        foil: the class or token whose logit is subtracted from that of `ids`; None for log-probabilities.
        scale: of a number what is added to the output times the second; None for classes and tokens.
        target: the class or token in readable form; of several predictions the first.
        contrast: what it is compared with; empty for log-probabilities.
        position: that of the first prediction; None for a classifier or a number.
    """

    rows: tuple[int, ...]
    ids: tuple[int, ...]
    foil: int | None
    scale: tuple[float, float] | None
    target: str
    contrast: str
    position: int | None

    @property
    def unit(self) -> Unit:
        return "nats" if self.scale is None else "number"

    def of(self, logits: Float[Tensor, "... P C"]) -> Float[Tensor, "... A"]:
        """Return what is followed of each prediction, given the logits, or outputs, of a text."""
        if self.scale is not None:
            mean, sd = self.scale
            return mean + sd * logits[..., 0].double()
        rows = logits[..., list(self.rows), :]
        ids = torch.tensor(self.ids, device=logits.device).expand(rows.shape[:-1])[..., None]
        if self.foil is not None:
            return rows.gather(-1, ids)[..., 0] - rows[..., self.foil]
        return rows.log_softmax(dim=-1).gather(-1, ids)[..., 0]

    def read(self, logits: Float[Tensor, "P C"], task: Task) -> list[str]:
        """Return the most probable class or token of each prediction, or the number, as text."""
        if self.scale is not None:
            return list(map(written_number, self.of(logits).tolist()))
        return [readable(task, id) for id in logits[list(self.rows)].argmax(dim=-1).tolist()]


class Result:
    """What was measured, with a short `repr`: how many rows it has, and in which unit."""

    def __repr__(self) -> str:
        fields = vars(self)
        counts = ", ".join(f"{len(rows)} {name}" for name, rows in fields.items() if isinstance(rows, list))
        return f"<{type(self).__name__} in {fields['unit']}: {counts}>"


def measure_of_answer(explanation: Explanation) -> Measure:
    """Return the log-probability of each class or token of the answer without edits; or the number."""
    explanation.check_has_answer()
    task, rows = explanation.subject.task, explanation.answered
    if explanation.is_number:
        return Measure((0,), (0,), None, task.decision.scale, NUMBER, "", None)
    chosen = [explanation.predictions[i] for i in rows]
    ids = tuple((p.actual or p.top[0]).id for p in chosen)
    return Measure(tuple(rows), ids, None, None, readable(task, ids[0]), "", chosen[0].position)


def positions_of(explanation: Explanation) -> list[int | None]:
    """Return the position of each prediction of the answer; None for a classifier or a number."""
    return [explanation.predictions[i].position for i in explanation.answered] or [None]


def measure_of_difference(
    explanation: Explanation, prediction: int, target: int | None = None, foil: int | None = None
) -> Measure:
    """Return the logit of a prediction minus that of its contrast, by default the most probable other class or token.

    Of a regressor that is its number minus the mean of the training numbers.
    """
    explanation.check_has_answer()
    task = explanation.subject.task
    if explanation.is_number:
        return Measure((0,), (0,), None, (0.0, task.decision.scale[1]), NUMBER, MEAN, None)
    chosen = explanation.predictions[prediction]
    target = (chosen.actual or chosen.top[0]).id if target is None else target
    foil = next(candidate.id for candidate in chosen.top if candidate.id != target) if foil is None else foil
    names = readable(task, target), readable(task, foil)
    return Measure((prediction,), (target,), foil, None, *names, chosen.position)


def base_logits(explanation: Explanation) -> Float[Tensor, "P C"]:
    """Return the logits, or the output, of a text without further edits, in double precision."""
    explanation.check_has_answer()
    check_whole(explanation)
    return rows_of(explanation.records["logits"].value.double())


def effects(
    explanation: Explanation, variants: Sequence[Sequence[str]], measure: Measure, other: Explanation | None = None
) -> Float[Tensor, "N A"]:
    """Return what is followed of each prediction under each of several sets of edits."""
    return measure.of(edited_logits(explanation, variants, other))


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
    """Return the logits, or outputs, of one text under each of several sets of edits, in double precision."""
    explanation.check_has_answer()
    check_whole(explanation, other)
    logits = torch.cat(list(_batches(explanation, variants, other))).double()
    return logits[:, None] if logits.dim() == 2 else logits


def _batches(
    explanation: Explanation, variants: Sequence[Sequence[str]], other: Explanation | None
) -> Iterator[Tensor]:
    subject = explanation.subject
    size = max(1, BATCH_TOKENS // sum(len(stream) for stream in explanation.streams))
    for start in range(0, len(variants), size):
        check_cancelled()
        rows = [edits_on(explanation, v, other) for v in variants[start : start + size]]
        inputs = {name: repeated(value, len(rows)) for name, value in explanation.model_inputs.items()}
        with tuned(subject.device), torch.no_grad(), trace(subject.model, lambda _: False, tap=BatchedEdits(rows)):
            yield exact_forward(subject.model, **inputs)
        for row in rows:
            row.check_fired()


def repeated(value: Any, n: int) -> Any:
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
    """Change of the log-probability of what is predicted without edits, summed over the predictions; or of a number."""
    n_changed: int
    """Number of predictions that differ; a number differs where its text does."""
    position: int | None
    """Position where the log-probability falls most; null for a classifier or a number."""
    before: str
    """The most probable class or token there without edits, or the number."""
    after: str
    """The same with edits."""


def variant_effects(explanation: Explanation, variants: Sequence[Sequence[str]]) -> list[VariantEffect]:
    """Return the effects of several sets of edits on the answer."""
    if not variants:
        return []
    measure, base = measure_of_answer(explanation), base_logits(explanation)
    after = edited_logits(explanation, variants)
    changes, task = measure.of(after) - measure.of(base), explanation.subject.task
    before, positions = measure.read(base, task), positions_of(explanation)
    found = []
    for edits, change, logits in zip(variants, changes, after, strict=True):
        texts, at = measure.read(logits, task), int(change.argmin())
        n_changed = sum(text != was for text, was in zip(texts, before, strict=True))
        found.append(VariantEffect([*edits], float(change.sum()), n_changed, positions[at], before[at], texts[at]))
    return found

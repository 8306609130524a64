"""What is followed of a text, as one number for each prediction, and how edits change it.

A `Measure` is made once from an explanation: log-probabilities of its answer, the logit difference of two classes or
tokens, or a number. Sweeps, contributions, attributions and findings measure with it; `effects` measures the same text
under each of several sets of edits, in a few batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.sites import Step
from glassformer.explain.edits.apply import Edits, check_whole, edits_on
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import NUMBER, readable, rows_of
from glassformer.explain.trace import trace
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.tasks import Task
from glassformer.text.answers import written_number
from glassformer.utils.device import tuned
from glassformer.utils.formatting import shortened
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
        positions: those of the predictions; None for a classifier or a number.
    """

    rows: tuple[int, ...]
    ids: tuple[int, ...]
    foil: int | None
    scale: tuple[float, float] | None
    target: str
    contrast: str
    positions: tuple[int | None, ...]

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

    def total(self, steps: Mapping[str, Step]) -> float:
        """Return the sum of what is followed over the predictions, given the steps of a pass."""
        return float(self.of(rows_of(steps["logits"].value.double())).sum())

    def read(self, logits: Float[Tensor, "P C"], task: Task) -> list[str]:
        """Return the most probable class or token of each prediction, or the number, as text."""
        if self.scale is not None:
            return list(map(written_number, self.of(logits).tolist()))
        return [readable(task, id) for id in logits[list(self.rows)].argmax(dim=-1).tolist()]


def measure_of_answer(explanation: Explanation) -> Measure:
    """Return the log-probability of each class or token of the answer without edits; or the number."""
    explanation.check_has_answer()
    task, rows = explanation.subject.task, explanation.answered
    if explanation.is_number:
        return Measure((0,), (0,), None, task.decision.scale, NUMBER, "", (None,))
    chosen = [explanation.predictions[i] for i in rows]
    ids = tuple((p.actual or p.top[0]).id for p in chosen)
    return Measure(tuple(rows), ids, None, None, readable(task, ids[0]), "", tuple(p.position for p in chosen))


def prediction_index(explanation: Explanation, prediction: int | None) -> int:
    """Return the index of a prediction, by default the first of the answer; of a number it is 0."""
    explanation.check_has_answer()
    n = max(len(explanation.predictions), explanation.is_number)
    if prediction is None:
        return next(iter(explanation.answered), n - 1)
    if not 0 <= prediction < n:
        raise UsageError(f"prediction {prediction} does not exist", f"predictions run from 0 to {n - 1}")
    return prediction


def measure_of_difference(
    explanation: Explanation, prediction: int, target: int | None = None, foil: int | None = None
) -> Measure:
    """Return the logit of a prediction minus that of its contrast, by default the most probable other class or token.

    Of a regressor that is its number minus the mean of the training numbers.
    """
    task = explanation.subject.task
    if explanation.is_number:
        return Measure((0,), (0,), None, (0.0, task.decision.scale[1]), NUMBER, MEAN, (None,))
    chosen = explanation.predictions[prediction]
    target = (chosen.actual or chosen.top[0]).id if target is None else target
    foil = next(candidate.id for candidate in chosen.top if candidate.id != target) if foil is None else foil
    names = readable(task, target), readable(task, foil)
    return Measure((prediction,), (target,), foil, None, *names, (chosen.position,))


def base_logits(explanation: Explanation) -> Float[Tensor, "P C"]:
    """Return the logits, or the output, of a text without further edits, in double precision."""
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
    check_whole(explanation, other)
    if not variants:
        return base_logits(explanation)[None][:0]
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
class Effect:
    """What edits change in one prediction."""

    position: int | None
    """Position of the prediction; null for the whole text, by a classifier."""
    target: str
    """The class or token that is followed: the model's own prediction, or the token that follows in the text."""
    contrast: str
    """What it is compared with: what the edited model predicts instead, else the second most probable."""
    before: str
    """The most probable class or token without edits."""
    after: str
    """The same with edits."""
    difference_before: float
    """Logit of the target minus that of the contrast, without edits."""
    difference_after: float
    """The same with edits."""
    log_prob_before: float
    """Log-probability of the target without edits, in nats."""
    log_prob_after: float
    """The same with edits."""
    rank_after: int
    """Number of classes or tokens with a larger logit than the target, with edits."""
    kl: float
    """Kullback–Leibler divergence of the distribution with edits from that without, in nats."""


def effects_of(explanation: Explanation, before: Float[Tensor, "P C"], after: Float[Tensor, "P C"]) -> list[Effect]:
    """Return the effect on each prediction of the answer, given the logits without and with edits; none on a number."""
    found, task = [], explanation.subject.task
    for i in explanation.answered if explanation.predictions else ():
        prediction, a, w = explanation.predictions[i], before[i], after[i]
        target, instead = (prediction.actual or prediction.top[0]).id, int(w.argmax())
        other = instead if instead != target else next(c.id for c in prediction.top if c.id != target)
        log_a, log_w = a.log_softmax(dim=-1), w.log_softmax(dim=-1)
        effect = Effect(
            position=prediction.position,
            target=readable(task, target),
            contrast=readable(task, other),
            before=prediction.top[0].piece,
            after=readable(task, instead),
            difference_before=float(a[target] - a[other]),
            difference_after=float(w[target] - w[other]),
            log_prob_before=float(log_a[target]),
            log_prob_after=float(log_w[target]),
            rank_after=int((w > w[target]).sum()),
            kl=float((log_a.exp() * (log_a - log_w)).sum()),
        )
        found.append(effect)
    return found


@dataclass(frozen=True)
class SweepRow:
    """What one set of edits changes in what is followed of a text."""

    name: str
    """What is edited: a part ("encoder.0.self.head2", "encoder.0.ff"), an attention ("encoder.0.self"), a checkpoint;
    of layers the last state that is read."""
    edits: list[str]
    """The edits; none where nothing switches a part off."""
    value_before: float
    """What is followed, without edits: the sum over the predictions, or the number."""
    value_after: float
    """The same with edits."""
    before: str
    """The most probable class or token without edits where the log-probability falls most; the number, or an answer."""
    after: str
    """The same with edits."""
    n_changed: int
    """Number of predictions that differ; a number differs where its text does, a checkpoint where its answer does."""
    position: int | None
    """Position where the log-probability falls most; null for a classifier or a number."""
    effects: list[Effect] = field(default_factory=list)
    """Of layers the effect on each prediction."""
    alone: SweepRow | None = None
    """Of a head the effect of switching off the other heads of the same block; null where there are none."""
    direct: float | None = None
    """Of contributions the term of the sum, with all norms held; null in other sweeps."""

    @property
    def change(self) -> float:
        """Return by how much the edits change what is followed."""
        return self.value_after - self.value_before


@dataclass(frozen=True, repr=False)
class Sweep:
    """The same kind of edit all over a model, or the parts of a sum."""

    rows: list[SweepRow]
    """In order of computation; checkpoints in that of training."""
    unit: Unit
    """Of what is followed: "nats" of log-probability or of a logit difference, or "number", that of the training."""
    target: str
    """The class or token that is followed, of several the first; or "number"."""
    contrast: str
    """Of contributions what it is compared with; for a number "mean of the training numbers"."""
    position: int | None
    """Position of the first prediction that is followed; null for a classifier or a number."""
    value: float
    """What is followed, without these edits; of contributions a logit difference, or the number minus that mean."""
    untrained: float | None = None
    """Of parts the largest change, in size, when a part of the same model with initial weights is off."""
    error: float | None = None
    """Of contributions their sum minus the value, which only rounding should leave."""

    def __repr__(self) -> str:
        return f"<Sweep of {shortened(self.target, 40)!r} in {self.unit}: {len(self.rows)} rows>"


def swept(
    explanation: Explanation, variants: Sequence[tuple[str, Sequence[str]]], measure: Measure, each: bool = False
) -> Sweep:
    """Return what several named sets of edits change; a set may be empty.

    Args:
        explanation: the explanation of the text.
        variants: names and edits.
        measure: what is followed.
        each: give the effect on each prediction, too.
    """
    base, task = base_logits(explanation), explanation.subject.task
    edited = iter(edited_logits(explanation, [edits for _, edits in variants if edits]))
    whole, before = measure.of(base), measure.read(base, task)
    rows = []
    for name, edits in variants:
        logits = next(edited) if edits else base
        values, texts = measure.of(logits), measure.read(logits, task)
        at = int((values - whole).argmin())
        row = SweepRow(
            name=name,
            edits=[*edits],
            value_before=float(whole.sum()),
            value_after=float(values.sum()),
            before=before[at],
            after=texts[at],
            n_changed=sum(text != was for text, was in zip(texts, before, strict=True)),
            position=measure.positions[at],
            effects=effects_of(explanation, base, logits) if each else [],
        )
        rows.append(row)
    return Sweep(rows, measure.unit, measure.target, measure.contrast, measure.positions[0], float(whole.sum()))

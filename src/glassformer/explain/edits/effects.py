"""What edits of a forward pass change: of one set of edits everything, of many sets one number for each prediction.

`what_if` records one more pass under edits. It reads the tokens of the explanation, so that its numbers compare
position by position; the text is decoded again, too, which shows what the model would say instead.

`edited_logits` computes the same text under each of several sets of edits, in a few batches. What is measured is a
`Measure`, made once from an explanation: log-probabilities of its answer, the logit difference of two classes or
tokens, or a number. Sweeps, contributions, attributions and findings measure with it.

Of an ensemble one member is edited and answers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.sites import Step
from glassformer.explain.edits.apply import AppliedEdit, Edits, check_whole, edits_on, means_of_run
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.explanation import Explanation, compute_explanation, log_prob_of
from glassformer.explain.inputs import (
    NUMBER,
    Answer,
    Prediction,
    answer_without_decoding,
    encode,
    output_of,
    readable,
    rows_of,
    text_answer,
    top_predictions,
)
from glassformer.explain.one_label import of_same_label
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject
from glassformer.explain.trace import Trace, record, trace
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


BATCH_TOKENS = 4096
"""Maximum tokens of a batch: more is not faster on a CPU, since they do not fit in its caches."""


class BatchedEdits:
    """A tap for a batch: each row has edits of its own.

    Attributes:
        ids: ids of the steps that any row wants.
    """

    def __init__(self, rows: Sequence[Edits]) -> None:
        self.rows, self.ids = rows, set().union(*(row.ids for row in rows))

    def __call__(self, id: str, x: Tensor) -> Tensor:
        """Return the tensor to use for a step."""
        if len(x) != len(self.rows):
            step = id.partition("@")[0]
            raise UsageError(f"{step} has no batch axis, so texts of one batch share it", "edit it with what_if")
        return torch.cat([row(id, part) for row, part in zip(self.rows, x.split(1), strict=True)])


def edited_logits(
    explanation: Explanation, variants: Sequence[Sequence[str]], other: Explanation | None = None
) -> Float[Tensor, "N P C"]:
    """Return the logits, or outputs, of one text under each of several sets of edits, in double precision."""
    check_whole(explanation, other)
    subject, found = explanation.subject, [base_logits(explanation)[None][:0]]
    size = max(1, BATCH_TOKENS // sum(len(stream) for stream in explanation.streams))
    for start in range(0, len(variants), size):
        check_cancelled()
        rows = [edits_on(explanation, v, other) for v in variants[start : start + size]]
        inputs = {name: repeated(value, len(rows)) for name, value in explanation.model_inputs.items()}
        with tuned(subject.device), torch.no_grad(), trace(subject.model, lambda _: False, tap=BatchedEdits(rows)):
            logits = exact_forward(subject.model, **inputs).double()
        found.append(logits[:, None] if logits.dim() == 2 else logits)
        for row in rows:
            row.check_fired()
    return torch.cat(found)


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
    of layers the last state that is read; of states the state ("embedding", "encoder.0.state")."""
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
    """Position where the log-probability falls most; null for a classifier or a number. Of states that of the token."""
    effects: list[Effect] = field(default_factory=list)
    """Of layers the effect on each prediction."""
    alone: SweepRow | None = None
    """Of a head the effect of switching off the other heads of the same block; null where there are none."""
    back: SweepRow | None = None
    """Of a state what the state of this text changes in the second one; null in other sweeps."""
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
    """The class or token that is followed, of several the first; or "number". Of states the answer to this text."""
    contrast: str
    """Of contributions what it is compared with; for a number "mean of the training numbers". Of states the answer to
    the second text."""
    position: int | None
    """Position of the first prediction that is followed; null for a classifier or a number."""
    value: float
    """What is followed, without these edits; of contributions and states a logit difference, or the number minus that
    mean."""
    error: float | None = None
    """Of contributions their sum minus the value, which only rounding should leave."""

    def __repr__(self) -> str:
        return f"<Sweep of {shortened(self.target, 40)!r} in {self.unit}: {len(self.rows)} rows>"


def swept(
    explanation: Explanation,
    variants: Sequence[tuple[str, Sequence[str]]],
    measure: Measure,
    each: bool = False,
    other: Explanation | None = None,
) -> Sweep:
    """Return what several named sets of edits change; a set may be empty.

    Args:
        explanation: the explanation of the text.
        variants: names and edits.
        measure: what is followed.
        each: give the effect on each prediction, too.
        other: the explanation of a second text, for =B.
    """
    base, task = base_logits(explanation), explanation.subject.task
    edited = iter(edited_logits(explanation, [edits for _, edits in variants if edits], other))
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


Explain = Callable[[Subject, TraceRequest, str], Explanation]


@dataclass(frozen=True, eq=False, repr=False)
class WhatIf:
    """The result of edits on one explanation."""

    edits: list[str]
    """The edits, as text."""
    applied: list[AppliedEdit]
    """The steps that they edit, in the order of application."""
    unchanged: list[str]
    """Edits that changed no number."""
    answer_before: str
    """The class, or the text that was decoded, without edits."""
    answer_after: str | None
    """The same with edits; null where it was not decoded again."""
    why_not: str
    """Why it was not decoded again; empty if it was."""
    same: list[str]
    """Ids of the steps whose numbers are the same with edits, to the bit."""
    effects: list[Effect]
    """What changes at each position that is predicted."""
    member: int | None
    """The member of an ensemble that is edited and gives both answers, alone; null: a single model."""
    trace: Trace
    """The steps of the edited pass."""
    answer: Answer
    """The answer with edits and its probability; where it was not decoded again, of the same text."""

    @property
    def changed(self) -> list[Effect]:
        """Return the effects at positions where the most probable class or token is another one."""
        return [effect for effect in self.effects if effect.before != effect.after]

    def __repr__(self) -> str:
        after = "not decoded again" if self.answer_after is None else repr(shortened(self.answer_after, 60))
        answers = f"{shortened(self.answer_before, 60)!r} → {after}"
        alone = "" if self.member is None else f"member {self.member} alone answers "
        n = len(self.effects)
        changed = f"; {len(self.changed)} of {n} predictions changed" if n else ""
        return f"<WhatIf {shortened('; '.join(self.edits), 80)}: {alone}{answers}{changed}>"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the steps and the answer's line as JSON data."""
        fields = {name: value for name, value in vars(self).items() if name not in ("trace", "answer")}
        return fields | {
            "applied": [asdict(applied) for applied in self.applied],
            "effects": [asdict(effect) for effect in self.effects],
        }


def explain_edited(
    subject: Subject, request: TraceRequest, trace_id: str, explain: Explain = compute_explanation
) -> Explanation:
    """Return the explanation of a text under the edits of the request: the tokens are those without edits."""
    for edit in request.edits:
        Edit.parse(edit)  # before anything is computed
    base, other = explain_unedited(subject, request, trace_id, explain)
    return with_edits(base, request.edits, other, trace_id=trace_id)


def explain_unedited(
    subject: Subject, request: TraceRequest, trace_id: str = "t1", explain: Explain = compute_explanation
) -> tuple[Explanation, Explanation | None]:
    """Return the explanations of the text of a request without its edits, and of its second text."""
    base = explain(subject, request.without_edits(), f"{trace_id}-without")
    if request.other_text is None:
        return base, None
    return base, explain(subject, of_same_label(request.of_other_text(), base.subject), f"{trace_id}-other")


def with_edits(
    base: Explanation, edits: Sequence[str], other: Explanation | None = None, *, trace_id: str = "edited"
) -> Explanation:
    """Return the explanation of a text under edits, given that without them; errors as in `what_if`."""
    result = what_if(base, edits, other)
    other_text = None if other is None else other.request.text
    return replace(
        base,
        request=replace(base.request, edits=tuple(edits), other_text=other_text),
        id=trace_id,
        records=result.trace,
        predictions=predictions_of(base, output_of(result.trace)),
        answer=result.answer,
        checks=[],
        edited=result,
        base=base,
        other=other,
    )


def what_if(
    explanation: Explanation, edits: Sequence[str], other: Explanation | None = None, *, again: bool = True
) -> WhatIf:
    """Return what the model predicts when steps of its forward pass are replaced.

    Args:
        explanation: the explanation of the text, of at most 128 tokens; if it is edited, its edits stay in both passes.
        edits: edits as text (`grammar.py`).
        other: the explanation of a second text by the same model, for =B.
        again: decode again, which takes most of the time.
    """
    check_whole(explanation, other)
    subject, records = explanation.subject, explanation.records

    def apply() -> Edits:
        return edits_on(explanation, edits, other)

    tap = apply()
    edited = record(subject.model, explanation.model_inputs, tap)
    tap.check_fired()
    before, after = (rows_of(output_of(e).double()) for e in (records, edited))
    answer, why_not = _decode_again(explanation, edited, tap, apply) if again else (None, "")
    return WhatIf(
        edits=[str(edit) for edit in tap.edits],
        applied=tap.applied(),
        unchanged=tap.unchanged,
        answer_before=explanation.answer["headline"],
        answer_after=None if answer is None else answer["headline"],
        why_not=why_not,
        same=[id for id, record in edited.items() if torch.equal(record.value, records[id].value)],
        effects=effects_of(explanation, before, after),
        member=None if explanation.together is None else explanation.request.member,
        trace=edited,
        answer=answer or _given_answer(explanation, output_of(edited)),
    )


def predictions_of(explanation: Explanation, logits: Tensor) -> list[Prediction]:
    """Return the predictions of other logits of the text, at the positions of the explanation."""
    rows = rows_of(logits)[: len(explanation.positions)]
    return top_predictions(explanation.subject.task, rows, explanation.positions, explanation.following)


def _given_answer(explanation: Explanation, after: Tensor) -> Answer:
    """Return the text of the explanation with its log-probability under edits, where it is not decoded again."""
    if not explanation.decode.hypotheses:
        return explanation.answer
    best = replace(explanation.decode.hypotheses[0], log_prob=log_prob_of(explanation, after))
    return text_answer(explanation.answer["headline"], replace(explanation.decode, hypotheses=[best]))


def _decode_again(
    explanation: Explanation, edited: Trace, tap: Edits, apply: Callable[[], Edits]
) -> tuple[Answer | None, str]:
    """Return what the model answers under edits, or why it was not decoded again."""
    subject, request = explanation.subject, explanation.request
    if not explanation.decode.hypotheses:
        before, masked = output_of((explanation.base or explanation).records), explanation.decode.masked
        return answer_without_decoding(subject, request.text, masked, output_of(edited), before), ""
    if request.target is not None:
        return None, "the text was given, so it is not decoded again"
    if placed := tap.at_positions_of(explanation.streams[-1].name):
        return None, f"not decoded again, as {placed[0]} is about positions of this text"
    used = apply()
    with tuned(subject.device), trace(subject.model, lambda _: False, tap=used):
        encoded = encode(subject, request)
    if idle := used.never_acted:
        return None, f"not decoded again, as {idle[0]} does not act while decoding"
    return text_answer(encoded.text, encoded.decode), ""


def predict_edited(
    subject: Subject, texts: Sequence[str], edits: Sequence[str], decode: DecodeConfig, member: int = 0
) -> list[dict[str, Any]]:
    """Return the predictions of texts under edits, as the task's `predict` does.

    Of an ensemble one member is edited and answers alone; its number is the "member" of each prediction. The first text
    gives the names and sizes by which the edits are checked.

    Raises:
        UsageError: an edit does not fit; or it is of one label or word, which an explanation alone looks at.
    """
    if not texts:
        return []
    first = compute_explanation(subject, TraceRequest(texts[0], member=member))
    tap = Edits(edits, first.records, means_of_run(first.subject, first.records))
    if first.labels is not None and (of_one := [id for id in tap.ids if first.records[id].stack == "head"]):
        message = f"{of_one[0]} is of one label or word here, and `predict` answers all of them"
        raise UsageError(message, "edit a step before it, or one text: glassformer edit RUN TEXT EDIT")
    generates = not (first.is_classifier or first.is_number)
    if generates and (placed := tap.at_positions_of(first.streams[-1].name)):
        raise UsageError(f"{placed[0]} is about positions of the text that is generated", "name other axes")
    with tuned(subject.device), trace(first.subject.whole, lambda _: False, tap=tap):
        answers = subject.task.predict(first.subject.whole, texts, decode)
    tap.check_fired()
    return answers if first.together is None else [answer | {"member": member} for answer in answers]

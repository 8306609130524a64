"""What a model predicts under edits: the same text in one more forward pass, and decoded again.

The pass reads the tokens of the explanation, so that its numbers compare position by position; decoding again shows
what the model would say instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.explain.edits.apply import AppliedEdit, Edits, check_whole, edits_on, means_of_run
from glassformer.explain.edits.grammar import Edit
from glassformer.explain.edits.measure import Effect, effects_of
from glassformer.explain.explanation import Explanation, compute_explanation
from glassformer.explain.inputs import answer_without_decoding, encode
from glassformer.explain.one_label import of_same_label
from glassformer.explain.predictions import Answer, Prediction, output_of, rows_of, text_answer, top_predictions
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject
from glassformer.explain.trace import Trace, trace
from glassformer.utils.device import tuned
from glassformer.utils.formatting import shortened

Explain = Callable[[Subject, TraceRequest], Explanation]


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
    records: RecordStore
    """The records of the edited pass."""
    answer: Answer
    """The answer with edits and its probability; where it was not decoded again, of the same text."""

    @property
    def trace(self) -> Trace:
        """Return the trace of the edited pass."""
        assert self.records.trace is not None  # edits need a text that is kept whole
        return self.records.trace

    @property
    def changed(self) -> list[Effect]:
        """Return the effects at positions where the most probable class or token is another one."""
        return [effect for effect in self.effects if effect.before != effect.after]

    def __repr__(self) -> str:
        after = "not decoded again" if self.answer_after is None else repr(shortened(self.answer_after, 60))
        answers = f"{shortened(self.answer_before, 60)!r} → {after}"
        edits = shortened("; ".join(self.edits), 80)
        return f"<WhatIf {edits}: {answers}; {len(self.changed)} of {len(self.effects)} predictions changed>"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the records and the answer's line as JSON data."""
        fields = {name: value for name, value in vars(self).items() if name not in ("records", "answer")}
        return fields | {
            "applied": [asdict(applied) for applied in self.applied],
            "effects": [asdict(effect) for effect in self.effects],
        }


def explain_edited(
    subject: Subject, request: TraceRequest, trace_id: str, explain: Explain | None = None
) -> Explanation:
    """Return the explanation of a text under the edits of the request: the tokens are those without edits."""
    for edit in request.edits:
        Edit.parse(edit)  # before anything is computed
    base, other = explain_unedited(subject, request, trace_id, explain)
    return with_edits(base, request.edits, other, trace_id=trace_id)


def explain_unedited(
    subject: Subject, request: TraceRequest, trace_id: str = "t1", explain: Explain | None = None
) -> tuple[Explanation, Explanation | None]:
    """Return the explanations of the text of a request without its edits, and of its second text."""
    first, second = (partial(compute_explanation, trace_id=f"{trace_id}-{which}") for which in ("without", "other"))
    base = (explain or first)(subject, request.without_edits())
    if request.other_text is None:
        return base, None
    return base, (explain or second)(subject, of_same_label(request.of_other_text(), base.subject))


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
        records=result.records,
        predictions=predictions_of(base, output_of(result.records)),
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
    edited = RecordStore(subject.model, explanation.model_inputs, explanation.streams, tap=tap)
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
        records=edited,
        answer=answer or _given_answer(explanation, predictions_of(explanation, output_of(edited))),
    )


def predictions_of(explanation: Explanation, logits: Tensor) -> list[Prediction]:
    """Return the predictions of other logits of the text, at the positions of the explanation."""
    old = explanation.predictions
    following = [None if p.actual is None else p.actual.id for p in old]
    rows = rows_of(logits)[: len(old)]
    return top_predictions(explanation.subject.task, rows, [p.position for p in old], following)


def _given_answer(explanation: Explanation, after: list[Prediction]) -> Answer:
    """Return the text of the explanation with its log-probability under edits, where it is not decoded again."""
    if not explanation.decode.hypotheses:
        return explanation.answer
    first = 0 if len(explanation.streams) > 1 else explanation.generation.first
    log_prob = math.fsum(p.actual.log_prob for p in after[first:] if p.actual is not None)
    best, *others = explanation.decode.hypotheses
    log = replace(explanation.decode, hypotheses=[replace(best, log_prob=log_prob), *others])
    return text_answer(explanation.answer["headline"], log)


def _decode_again(
    explanation: Explanation, edited: RecordStore, tap: Edits, apply: Callable[[], Edits]
) -> tuple[Answer | None, str]:
    """Return what the model answers under edits, or why it was not decoded again."""
    subject, request = explanation.subject, explanation.request
    if not explanation.decode.hypotheses:
        before, masked = output_of((explanation.base or explanation).records), explanation.generation.masked
        answer = answer_without_decoding(subject, request.text, masked, output_of(edited), before)
        return (explanation.labels.about(answer) if explanation.labels else answer), ""
    if request.target is not None:
        return None, "the text was given, so it is not decoded again"
    if placed := tap.at_positions_of(explanation.streams[-1].name):
        return None, f"not decoded again, as {placed[0]} is about positions of this text"
    used = apply()
    with tuned(subject.device), trace(subject.model, lambda _: False, tap=used):
        encoded = encode(subject, request)
    if idle := used.never_acted:
        return None, f"not decoded again, as {idle[0]} does not act while decoding"
    return text_answer(encoded.answer, encoded.decode), ""


def predict_edited(
    subject: Subject, texts: Sequence[str], edits: Sequence[str], decode: DecodeConfig, member: int = 0
) -> list[dict[str, Any]]:
    """Return the predictions of texts under edits, as the task's `predict` does; of an ensemble by one member alone.

    The first text gives the names and sizes by which the edits are checked.

    Raises:
        UsageError: an edit does not fit; or it is of one label or word, which an explanation alone looks at.
    """
    if not texts:
        return []
    first = compute_explanation(subject, TraceRequest(texts[0], member=member))
    tap = Edits(edits, first.records, means=means_of_run(first.subject, first.records))
    if first.labels is not None and (of_one := [id for id in tap.ids if first.records.steps[id].stack == "head"]):
        message = f"{of_one[0]} is of one label or word here, and `predict` answers all of them"
        raise UsageError(message, "edit a step before it, or one text: glassformer edit RUN TEXT EDIT")
    generates = not (first.is_classifier or first.is_number)
    if generates and (placed := tap.at_positions_of(first.streams[-1].name)):
        raise UsageError(f"{placed[0]} is about positions of the text that is generated", "name other axes")
    with tuned(subject.device), trace(first.subject.whole, lambda _: False, tap=tap):
        answers = subject.task.predict(first.subject.whole, texts, decode)
    tap.check_fired()
    return answers

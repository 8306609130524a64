"""What a model predicts under edits: the same text in one more forward pass, and decoded again.

The pass reads the tokens of the explanation, so that its numbers compare position by position; decoding again shows
what the model would say instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.answers import Answer, class_answer
from glassformer.explain.capture.records import Check
from glassformer.explain.compute import compute_explanation
from glassformer.explain.edits.apply import Edits
from glassformer.explain.edits.reference import means_of_run
from glassformer.explain.effects import Effect, WhatIf
from glassformer.explain.ensemble_member import ensemble_class_answer
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.inputs.families import encode
from glassformer.explain.inputs.masked_language_model import filled_answer
from glassformer.explain.predictions import Prediction, top_predictions
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import LoadedSubject, Subject
from glassformer.explain.trace import trace
from glassformer.models.ensemble import Ensemble
from glassformer.utils.device import tuned


def explain_edited(
    subject: Subject,
    request: TraceRequest,
    trace_id: str,
    explain: Callable[[Subject, TraceRequest], ExplanationData] = compute_explanation,
) -> ExplanationData:
    """Return the explanation of a text under the edits of the request: the tokens are those without edits.

    Args:
        subject: a loaded `Run`.
        request: a request with edits.
        trace_id: the name of the explanation on the page.
        explain: returns the explanation of a request without edits, perhaps one computed before.

    Raises:
        UsageError: an edit is malformed, names no step, does not fit or never acts; or the text is too long.
        CheckpointError, DivergedError: as in `compute_explanation`.
    """
    base = explain(subject, request.without_edits())
    other = None if request.other_text is None else explain(subject, request.of_other_text())
    return edited_explanation(base, request, trace_id, what_if(base, request.edits, other))


def edited_explanation(base: ExplanationData, request: TraceRequest, trace_id: str, result: WhatIf) -> ExplanationData:
    """Return the explanation of a text under edits, given that without them and the result of the edits."""
    predictions = _predictions(base, result.records["logits"].value)
    return replace(
        base,
        request=request,
        id=trace_id,
        records=result.records,
        predictions=predictions,
        answer=_answer_line(base, predictions, result),
        checks=[_untouched(base, result)],
        edited=result,
    )


def _answer_line(base: ExplanationData, predictions: list[Prediction], result: WhatIf) -> Answer:
    if base.is_classifier and base.together is None:
        return class_answer(predictions[0])
    after = result.answer_after if base.together is None else result.ensemble_after
    return base.answer if after is None else {"headline": after, "detail": "with the edits"}


def _untouched(base: ExplanationData, result: WhatIf) -> Check:
    """Compare the steps before the first edited one with those of the pass without edits: equal to the bit."""
    edited = {applied.step for applied in result.applied}
    value = 0.0
    for id in itertools.takewhile(lambda id: id not in edited, result.records):
        if id not in result.same:
            value = max(value, float((result.records[id].value.double() - base.records[id].value.double()).abs().max()))
    meaning = "The largest difference between the steps before the first edit, with edits and without."
    return Check("before the first edit", value, 0.0, value == 0.0, meaning)


def what_if(
    explanation: ExplanationData, edits: Sequence[str], other: ExplanationData | None = None, *, again: bool = True
) -> WhatIf:
    """Return what the model predicts when steps of its forward pass are replaced.

    Args:
        explanation: the explanation of the text, of at most 128 tokens.
        edits: edits as text (`grammar.py`).
        other: the explanation of a second text by the same model, for =B.
        again: decode again, which takes most of the time.

    Raises:
        UsageError: an edit is malformed, names no step, does not fit or never acts; or the text is too long.
    """
    check_whole(explanation, other)
    subject, records = explanation.subject, explanation.records
    means = means_of_run(subject, records)

    def apply() -> Edits:
        return Edits(edits, records, None if other is None else other.records, means)

    tap = apply()
    lengths = {stream.name: len(stream) for stream in explanation.streams}
    edited = RecordStore(subject.model, explanation.model_inputs, lengths, tap=tap)
    tap.check_fired()
    after = _predictions(explanation, edited["logits"].value)
    logits = [_rows(e["logits"].value) for e in (records, edited)]
    effects = [
        _effect(explanation, i, logits[0][i], logits[1][i], after[i])
        for i in ([0] if explanation.is_classifier else explanation.generated)
    ]
    answer, ensemble_after, why_not = (
        _decode_again(explanation, after, edited, tap, apply) if again else (None, None, "")
    )
    return WhatIf(
        edits=[str(edit) for edit in tap.edits],
        applied=tap.applied(),
        unchanged=tap.unchanged,
        answer_before=(explanation.answer if explanation.together is None else explanation.together.own)["headline"],
        answer_after=answer,
        ensemble_before=None if explanation.together is None else explanation.answer["headline"],
        ensemble_after=ensemble_after,
        why_not=why_not,
        same=[id for id, record in edited.items() if torch.equal(record.value, records[id].value)],
        effects=effects,
        records=edited,
    )


def check_whole(*explanations: ExplanationData | None) -> None:
    """Check that all tensors of these explanations are kept.

    Raises:
        UsageError: a text is too long.
    """
    if any(e is not None and e.records.trace is None for e in explanations):
        raise UsageError("edits need a text of at most 128 tokens", "shorten the text")


def _rows(logits: Float[Tensor, "..."]) -> Float[Tensor, "N C"]:
    """Return logits with a row per prediction, in double precision."""
    return logits.double().reshape(-1, logits.shape[-1])


def _predictions(explanation: ExplanationData, logits: Tensor) -> list[Prediction]:
    """Return the predictions of edited logits at the positions of the explanation."""
    old = explanation.predictions
    following = [None if p.actual is None else p.actual.id for p in old]
    rows = logits[None] if logits.dim() == 1 else logits
    return top_predictions(explanation.subject.task, rows[: len(old)], [p.position for p in old], following)


def _effect(explanation: ExplanationData, i: int, a: Tensor, w: Tensor, after: Prediction) -> Effect:
    """Return the effect on one prediction, given its logits (C,) without and with edits."""
    before = explanation.predictions[i]
    target = before.actual or before.top[0]
    contrast = after.top[0] if after.top[0].id != target.id else next(c for c in before.top if c.id != target.id)
    log_a, log_w = a.log_softmax(dim=-1), w.log_softmax(dim=-1)
    return Effect(
        position=before.position,
        target=target.piece,
        contrast=contrast.piece,
        before=before.top[0].piece,
        after=after.top[0].piece,
        difference_before=float(a[target.id] - a[contrast.id]),
        difference_after=float(w[target.id] - w[contrast.id]),
        log_prob_before=float(log_a[target.id]),
        log_prob_after=float(log_w[target.id]),
        rank_after=int((w > w[target.id]).sum()),
        kl=float((log_a.exp() * (log_a - log_w)).sum()),
    )


def _decode_again(
    explanation: ExplanationData, after: list[Prediction], edited: RecordStore, tap: Edits, apply: Callable[[], Edits]
) -> tuple[str | None, str | None, str]:
    """Return what the model answers under edits, what its ensemble does, and if it was not decoded again, why."""
    subject, request = explanation.subject, explanation.request
    whole = subject.base if isinstance(subject, LoadedSubject) and explanation.together is not None else None
    if explanation.is_classifier:
        answer = after[0].top[0].piece
        if whole is None:
            return answer, None, ""
        with trace(subject.model, lambda _: False, tap=apply()):
            of_all = ensemble_class_answer(whole.task, cast(Ensemble, whole.model), explanation.model_inputs)
        return answer, of_all["headline"], ""
    if (masked := explanation.generation.masked) is not None:
        return filled_answer(subject, request.text, edited["logits"].value[masked])["headline"], None, ""
    if request.target is not None:
        return None, None, "the text was given, so it is not decoded again"
    if placed := tap.at_positions_of(explanation.streams[-1].name):
        return None, None, f"not decoded again, as {placed[0]} is about positions of this text"
    answers: list[str | None] = []
    for one in (subject, whole):
        if one is None:
            answers.append(None)
            continue
        with tuned(subject.device), trace(subject.model, lambda _: False, tap=apply()):
            answers.append(encode(one, request).answer)
    return answers[0], answers[1], ""

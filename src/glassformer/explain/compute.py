"""One text through a trained model: what goes in, one recorded pass, and what is known after it.

Encoding and decoding are `preparing/`, recording is `record_store.py`; here they are joined, the target that was given is
scored, and decoding is checked against the one pass over the finished text.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from glassformer.decode import Hypothesis
from glassformer.decode.hypothesis import length_norms
from glassformer.explain import answers
from glassformer.explain.answers import Answer
from glassformer.explain.capture.exactly import answer, asking
from glassformer.explain.capture.records import Check
from glassformer.explain.decode_log import DecodeLog, LoggedHypothesis
from glassformer.explain.ensemble_member import EnsembleMember, ensemble_answer, with_member
from glassformer.explain.explanation_data import ExplanationData, Omitted
from glassformer.explain.manifest import manifest
from glassformer.explain.predictions import Prediction, predict
from glassformer.explain.preparing.kinds import kind_of, prepare
from glassformer.explain.preparing.prepared import Prepared
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.subject import Subject, with_checkpoint
from glassformer.models.ensemble import Ensemble
from glassformer.runtime import tuned


def compute_explanation(subject: Subject, request: TraceRequest, trace_id: str = "t1") -> ExplanationData:
    """Encode and decode a text as `predict` would, capture one pass, and say what is known then.

    Args:
        subject: a loaded `Run`.
        request: the text, and how to go about it.
        trace_id: what a page calls the result.

    Raises:
        UsageError: the request asks what this task, vocabulary or context cannot give.
        CheckpointError: the checkpoint asked for is damaged.
        DivergedError: the model's logits are not numbers.
    """
    began = time.perf_counter()
    with tuned(subject.device):
        whole = with_checkpoint(subject, request.checkpoint)
        subject = with_member(whole, request.member)
        prepared = prepare(subject, request)
        lengths = {stream.name: len(stream) for stream in prepared.streams}
        records = RecordStore(subject.model, prepared.model_inputs, lengths, request.window_start)
        predictions = _predictions(subject, prepared, records)
        decode = _scored(subject, prepared) if prepared.decode.kind == "given" else prepared.decode
        said = _answer(predictions, decode, prepared)
        checks = [*records.checks, *_decoding_check(predictions, decode, prepared, records)]
        together, warnings = None, prepared.warnings
        if isinstance(whole.model, Ensemble):
            together = EnsembleMember(len(whole.model.members), request.member, said)
            said = _answer_of_all(whole, request, prepared)
            warnings = [*warnings, together.sentence(said)]
    return ExplanationData(
        subject=subject, request=request, id=trace_id, model_inputs=prepared.model_inputs,
        streams=prepared.streams, predictions=predictions, wrote=prepared.wrote, decode=decode, answer=said,
        together=together, records=records, checks=checks, omitted=omitted(records, lengths),
        warnings=warnings, seconds=time.perf_counter() - began,
    )  # fmt: skip


def compute_decoding(subject: Subject, request: TraceRequest) -> dict[str, Any]:
    """{"decode", "answer", "streams"} of a manifest, without looking inside where that can be spared."""
    if not kind_of(subject.task).decides and request.target is None:
        with tuned(subject.device):
            whole = with_checkpoint(subject, request.checkpoint)
            prepared = prepare(with_member(whole, request.member), request)
            said = answers.written(prepared.answer, prepared.decode)
            if isinstance(whole.model, Ensemble):
                said = _answer_of_all(whole, request, prepared)
        log, streams = prepared.decode.to_json(), [stream.to_json() for stream in prepared.streams]
        return {"decode": log, "answer": said, "streams": streams}
    told = manifest(compute_explanation(subject, request))
    return {"decode": told["decode"], "answer": told["answer"], "streams": told["streams"]}


def _predictions(subject: Subject, prepared: Prepared, records: RecordStore) -> list[Prediction]:
    """Of the positions that are shown."""
    logits = records["logits"].value
    positions, following = prepared.positions, prepared.following
    if logits.dim() == 1:
        logits = logits[None]
    elif records.window is not None and len(logits) < len(prepared.streams[-1]):
        positions, following = positions[slice(*records.window)], following[slice(*records.window)]
    return predict(subject.task, logits[: len(positions)], positions, following)


def _scored(subject: Subject, prepared: Prepared) -> DecodeLog:
    """The log of a target that was given, with the score the model gives it."""
    with asking(subject.model):
        log_probs = answer(subject.model, **prepared.model_inputs)[0].double().log_softmax(dim=-1)
    ids = [token for token in prepared.following if token is not None]
    log_prob = math.fsum(log_probs[i, token].item() for i, token in enumerate(ids))
    penalty = prepared.decode.settings.length_penalty
    score = log_prob / length_norms(len(ids), penalty)[len(ids)]
    told = LoggedHypothesis.of(Hypothesis(ids[:-1], score, log_prob, True), subject.task.tokenizer)
    return replace(prepared.decode, hypotheses=[told])


def _answer(predictions: list[Prediction], decode: DecodeLog, prepared: Prepared) -> Answer:
    return answers.written(prepared.answer, decode) if decode.hypotheses else answers.decided(predictions[0])


def _answer_of_all(whole: Subject, request: TraceRequest, prepared: Prepared) -> Answer:
    """What an ensemble decides or writes, or how likely it finds the target that was given."""
    if kind_of(whole.task).decides:
        return ensemble_answer(whole.task, cast(Ensemble, whole.model), prepared.model_inputs)
    if prepared.decode.kind == "given":
        return answers.written(prepared.answer, _scored(whole, prepared))
    written = prepare(whole, request)
    return answers.written(written.answer, written.decode)


def _decoding_check(
    predictions: list[Prediction], decode: DecodeLog, prepared: Prepared, records: RecordStore
) -> list[Check]:
    """Whether decoding, step by step with cached keys, and this pass give the answer one probability."""
    if decode.kind not in ("beam", "sample") or records.window is not None:
        return []
    passed = [p.actual.log_prob for p in predictions[prepared.logged_from :] if p.actual is not None]
    decoded = decode.hypotheses[0]
    if len(passed) != len(decoded.ids) + decoded.finished or not decoded.log_prob:
        return []
    value = abs(math.fsum(passed) - decoded.log_prob)
    tolerance = 1e-4 * max(1.0, abs(decoded.log_prob))
    meaning = (
        "How far the log-probability that decoding summed up, with keys and values cached, is from that of "
        "this one pass over the finished text."
    )
    return [Check("decoding against this pass", value, tolerance, value <= tolerance, meaning)]


def omitted(records: RecordStore, lengths: Mapping[str, int]) -> list[Omitted]:
    """What is not shown of a long text, and why, each in a sentence."""
    longest = max(lengths.values(), default=0)
    if records.window is not None:
        start, end = records.window
        return [
            {
                "what": f"of streams of more than {MAX_LAYERED_TOKENS} tokens only positions {start} to {end - 1} are shown",
                "why": f"the longest has {longest} tokens, and its matrices grow with the square of that; "
                "move the window to see others",
            },
            {
                "what": "numbers cannot be recomputed here where they sum over positions outside the window",
                "why": "those positions were not sent",
            },
        ]
    if records.layered:
        return [
            {
                "what": "one layer's tensors are held at a time",
                "why": f"the text has {longest} tokens, more than {MAX_FULL_TOKENS}: looking at another layer runs the "
                "model again, with the same numbers",
            }
        ]
    return []

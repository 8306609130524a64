"""Run one text through a trained model and collect an explanation: encode, decode, record one forward pass.

Encoding and decoding are in `inputs/`, recording is in `record_store.py`. Here they are joined, and a given target is
scored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from glassformer.decode.search import Hypothesis, length_penalties
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.explanation import Explanation, Omitted
from glassformer.explain.inputs.encoded_text import EncodedText
from glassformer.explain.inputs.families import answer_without_decoding, encode
from glassformer.explain.one_label import Labels, looked_at
from glassformer.explain.predictions import (
    Answer,
    DecodeLog,
    EnsembleMember,
    LoggedHypothesis,
    output_of,
    rows_of,
    text_answer,
    top_predictions,
)
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import MAX_FULL_TOKENS, TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import MODEL, Subject, View
from glassformer.models.ensemble import members_of
from glassformer.text.decision import KINDS
from glassformer.utils.device import tuned


def compute_explanation(run: Subject, request: TraceRequest, trace_id: str = "t1") -> Explanation:
    """Encode and decode a text as `predict` would, record one forward pass, and return all that is known of it."""
    started = time.perf_counter()
    with tuned(run.device):
        view, labels = looked_at(run, request)
        encoded = encode(view, request)
        records = RecordStore(view.model, encoded.model_inputs, encoded.streams)
        return explain_encoded(view, labels, request, encoded, records, trace_id, started)


def explain_encoded(
    view: View,
    labels: Labels | None,
    request: TraceRequest,
    encoded: EncodedText,
    records: RecordStore,
    trace_id: str,
    started: float,
) -> Explanation:
    """Return what is known of an encoded text, given the records of its forward pass.

    Args:
        view: what is explained.
        labels: all answers of a model that gives several.
        request: the request.
        encoded: the text.
        records: the records of the pass.
        trace_id: the name of the explanation on the page.
        started: when the work began, on `time.perf_counter`.
    """
    logits = rows_of(output_of(records))[: len(encoded.positions)]
    predictions = top_predictions(view.task, logits, encoded.positions, encoded.following)
    decode = _scored(view, encoded) if encoded.decode.kind == "given" else encoded.decode
    answer, together, warnings = _answer(view, decode, encoded, output_of(records)), None, encoded.warnings
    answer = labels.about(answer) if labels else answer
    if view.together is not None:
        all_answer = _answer_together(view.together, request, encoded)
        all_answer = labels.about(all_answer) if labels else all_answer
        together = EnsembleMember(len(members_of(view.weights)), view.member, all_answer)
        warnings = [*warnings, together.warning(answer)]
    if getattr(view.run, "precision", "fp32") != "fp32":
        warnings = [*warnings, "`predict` computes in bf16, and everything here is fp32: the third digit may differ"]
    # Of an ensemble the temperature is of its mean probabilities; it is of neither other weights nor what has learned.
    fits = view.task.explain_as in KINDS and view.together is None and view.checkpoint == MODEL and not request.answer
    return Explanation(
        subject=view,
        request=request,
        id=trace_id,
        model_inputs=encoded.model_inputs,
        streams=encoded.streams,
        predictions=predictions,
        generation=encoded.generation,
        decode=decode,
        answer=answer,
        together=together,
        labels=labels,
        records=records,
        checks=records.checks,
        omitted=_omitted(records, encoded.streams),
        warnings=warnings,
        seconds=time.perf_counter() - started,
        temperature=view.run.task.decision.temperature if fits else None,
    )


def compute_decoding(subject: Subject, request: TraceRequest) -> tuple[DecodeLog, Answer, list[Stream]]:
    """Return how a text is decoded, the answer and the tokens, without recording where that is possible."""
    if request.edits:
        raise UsageError("decoding is logged without edits only", "trace the text with its edits instead")
    if subject.task.explain_as not in ("translator", "language_model") or request.target is not None:
        explanation = compute_explanation(subject, request)
        return explanation.decode, explanation.answer, explanation.streams
    with tuned(subject.device):
        encoded = encode(looked_at(subject, request)[0], request)
    return encoded.decode, text_answer(encoded.answer, encoded.decode), encoded.streams


def _scored(subject: Subject, encoded: EncodedText) -> DecodeLog:
    """Return the log of a given target, or of the answer that a prompt should have, with the model's score of it."""
    with exact_no_grad(subject.model):
        log_probs = exact_forward(subject.model, **encoded.model_inputs)[0].double().log_softmax(dim=-1)
    start = encoded.log_start
    ids = [token for token in encoded.following[start:] if token is not None]
    log_prob = math.fsum(log_probs[i, token].item() for i, token in enumerate(ids, start))
    penalty = encoded.decode.settings.length_penalty
    score = log_prob / length_penalties(len(ids), penalty)[len(ids)]
    finished = ids[-1] == subject.task.tokenizer.of_targets.eos_id
    target = Hypothesis(ids[:-1] if finished else ids, score, log_prob, finished)
    return replace(encoded.decode, hypotheses=[LoggedHypothesis.from_hypothesis(target, subject.task.tokenizer)])


def _answer(subject: Subject, decode: DecodeLog, encoded: EncodedText, output: Tensor) -> Answer:
    """Return what a model answers, given the log of its decoding or its output for the text."""
    if decode.hypotheses:
        return text_answer(encoded.answer, decode)
    return answer_without_decoding(subject, encoded.streams[0].text, encoded.generation.masked, output)


def _answer_together(all_of: Subject, request: TraceRequest, encoded: EncodedText) -> Answer:
    """Return the answer of all members of an ensemble."""
    if encoded.decode.kind == "none":
        with exact_no_grad(all_of.model):
            output = exact_forward(all_of.model, **encoded.model_inputs)[0]
        return _answer(all_of, encoded.decode, encoded, output)
    if encoded.decode.kind == "given":
        return text_answer(encoded.answer, _scored(all_of, encoded))
    decoded = encode(all_of, request)
    return text_answer(decoded.answer, decoded.decode)


def _omitted(records: RecordStore, streams: Sequence[Stream]) -> list[Omitted]:
    """Return what is not shown of a long text, and why."""
    if not records.layered:
        return []
    why = (
        f"the text has {max(map(len, streams))} tokens, more than {MAX_FULL_TOKENS}: opening another layer runs the "
        "model again, with the same results"
    )
    return [{"what": "one layer's tensors are held at a time", "why": why}]

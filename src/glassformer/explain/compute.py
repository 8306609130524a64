"""Run one text through a trained model and collect an explanation: encode, decode, record one forward pass.

Encoding and decoding are in `inputs/`, recording is in `record_store.py`. Here they are joined, a given target is
scored, and decoding is checked against the single pass over the finished text.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from glassformer.config.recipes import override
from glassformer.data.datasets.numbers import is_number
from glassformer.decode.search import Hypothesis, length_penalties
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.capture.tape import Check
from glassformer.explain.explanation import Explanation, Omitted
from glassformer.explain.inputs.encoded_text import EncodedText
from glassformer.explain.inputs.families import encode, family_of, filled_answer
from glassformer.explain.one_label import Labels, of_one_label
from glassformer.explain.predictions import (
    Answer,
    DecodeLog,
    EnsembleMember,
    LoggedHypothesis,
    Prediction,
    class_answer,
    finite,
    number_answer,
    output_of,
    rows_of,
    text_answer,
    top_predictions,
    vector_answer,
)
from glassformer.explain.record_store import RecordStore
from glassformer.explain.request import MAX_FULL_TOKENS, TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import MODEL, Subject, with_checkpoint, with_member
from glassformer.models.ensemble import Ensemble
from glassformer.text.answers import answer_lines
from glassformer.text.decision import KINDS, AnswerRule
from glassformer.utils.device import tuned
from glassformer.utils.formatting import shortened


def compute_explanation(subject: Subject, request: TraceRequest, trace_id: str = "t1") -> Explanation:
    """Encode and decode a text as `predict` would, record one forward pass, and return all that is known of it."""
    started = time.perf_counter()
    check_calibrated(subject, request)
    with tuned(subject.device):
        run, (whole, labels) = subject, of_one_label(with_checkpoint(subject, request.checkpoint), request)
        subject = with_member(whole, request.member)
        encoded = encode(subject, request)
        records = RecordStore(subject.model, encoded.model_inputs, encoded.streams)
        explained = explain_encoded(run, whole, subject, request, encoded, records, trace_id, started)
        return precision_noted(with_labels(explained, labels), run)


def precision_noted(explanation: Explanation, run: Any) -> Explanation:
    """Add a warning where `predict` computes in bf16, and answers otherwise, by two digits, than all here, in fp32."""
    request = explanation.request
    given = request.target is not None or request.prefix or request.checkpoint != MODEL
    if getattr(run, "precision", "fp32") == "fp32" or given:
        return explanation
    decode = override(run.config, {"decode": dict(request.decode)}, "decode").decode

    def answer(model: nn.Module) -> str:
        with tuned(run.device, run.computing):
            lines = answer_lines(run.task.predict(model, [request.text], decode)[0])
        cells = (f"{float(x):.2g}" if is_number(x) else x for x in "\t".join(lines).split("\t"))
        return shortened(", ".join(cells), 80)

    there, here = answer(run.answering), answer(run.model)
    note = f"`predict` answers in bf16: {there}; in fp32, as everything here, it is {here}"
    return explanation if there == here else replace(explanation, warnings=[*explanation.warnings, note])


def with_labels(explanation: Explanation, labels: Labels | None) -> Explanation:
    """Return an explanation with the labels, or the words, of which it looks at one, and a note of an ensemble."""
    answer, together, warnings = explanation.answer, explanation.together, explanation.warnings
    if labels:
        answer, together = labels.about(answer), together and replace(together, answer=labels.about(together.answer))
    if together:
        warnings = [*warnings, together.warning(answer)]
    return replace(explanation, labels=labels, answer=answer, together=together, warnings=warnings)


def explain_encoded(
    run: Subject,
    whole: Subject,
    subject: Subject,
    request: TraceRequest,
    encoded: EncodedText,
    records: RecordStore,
    trace_id: str,
    started: float,
) -> Explanation:
    """Return what is known of an encoded text, given the records of its forward pass.

    Args:
        run: the run that was asked.
        whole: it with the requested weights, of all members.
        subject: the member that is explained.
        request: the request.
        encoded: the text.
        records: the records of the pass.
        trace_id: the name of the explanation on the page.
        started: when the work began, on `time.perf_counter`.
    """
    logits = rows_of(output_of(records))[: len(encoded.positions)]
    predictions = top_predictions(subject.task, logits, encoded.positions, encoded.following)
    decode = _scored(subject, encoded) if encoded.decode.kind == "given" else encoded.decode
    fitted = fitted_temperature(run, request)
    own, member = fitted, None
    if isinstance(whole.model, Ensemble):  # whose temperature is of its mean probabilities
        answer = _ensemble_answer(whole, request, encoded, fitted if request.calibrated else None)
        own, member = None, EnsembleMember(len(whole.model.members), request.member, answer)
    output = _answer(subject, predictions, decode, encoded, records, own if request.calibrated else None)
    checks = [*records.checks, *_decoding_check(predictions, decode, encoded)]
    return Explanation(
        subject=subject,
        request=request,
        id=trace_id,
        model_inputs=encoded.model_inputs,
        streams=encoded.streams,
        predictions=predictions,
        generation=encoded.generation,
        decode=decode,
        answer=output,
        together=member,
        records=records,
        checks=checks,
        omitted=_omitted(records, encoded.streams),
        warnings=encoded.warnings,
        seconds=time.perf_counter() - started,
        run=run,
        temperature=own,
    )


def fitted_temperature(run: Subject, request: TraceRequest) -> float | None:
    """Return the temperature that was fitted on the validation texts, to the model of a request; None where none was.

    It is of the finished model: neither of an earlier checkpoint, nor of one that learns an answer.
    """
    of_other_weights = request.checkpoint != MODEL or request.answer is not None
    return None if of_other_weights or run.task.explain_as not in KINDS else run.task.decision.temperature


def check_calibrated(run: Subject, request: TraceRequest) -> None:
    """Raise UsageError where calibrated probabilities are requested of a model to which no temperature was fitted."""
    if not request.calibrated:
        return
    AnswerRule.of(run.task.explain_as, run.task.decision, {"calibrated": True})
    if request.checkpoint != MODEL:
        message = f"the temperature was fitted to the finished model, and not to {request.checkpoint}"
        raise UsageError(message, "leave out calibrated, or the checkpoint")


def compute_decoding(subject: Subject, request: TraceRequest) -> tuple[DecodeLog, Answer, list[Stream]]:
    """Return how a text is decoded, the answer and the tokens, without recording where that is possible."""
    if request.edits:
        raise UsageError("decoding is logged without edits only", "trace the text with its edits instead")
    if subject.task.explain_as not in ("translator", "language_model") or request.target is not None:
        explanation = compute_explanation(subject, request)
        return explanation.decode, explanation.answer, explanation.streams
    with tuned(subject.device):
        whole = with_checkpoint(subject, request.checkpoint)
        encoded = encode(with_member(whole, request.member), request)
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


def _answer(
    subject: Subject,
    predictions: list[Prediction],
    decode: DecodeLog,
    encoded: EncodedText,
    records: RecordStore,
    temperature: float | None,
) -> Answer:
    if (masked := encoded.generation.masked) is not None:
        return filled_answer(subject, encoded.streams[0].text, records["logits"].value[masked])
    if subject.task.explain_as == "regressor":
        return number_answer(subject.task.decision, finite(output_of(records)))
    if not predictions:
        return vector_answer(output_of(records))
    if decode.hypotheses:
        return text_answer(encoded.answer, decode)
    return class_answer(predictions[0], rows_of(output_of(records))[0], temperature)


def _ensemble_answer(whole: Subject, request: TraceRequest, encoded: EncodedText, temperature: float | None) -> Answer:
    """Return the class or text that an ensemble predicts, or its probability of a given target."""
    if whole.task.explain_as == "regressor":
        with exact_no_grad(whole.model):
            output = exact_forward(whole.model, **encoded.model_inputs)
        return number_answer(whole.task.decision, finite(output[0]))
    if family_of(whole.task).is_classifier:
        with exact_no_grad(whole.model):
            logits = exact_forward(whole.model, **encoded.model_inputs)
        prediction = top_predictions(whole.task, logits, [None], [None])[0]
        return class_answer(prediction, logits[0], temperature)
    if (masked := encoded.generation.masked) is not None:
        with exact_no_grad(whole.model):
            logits = exact_forward(whole.model, **encoded.model_inputs)[0]
        return filled_answer(whole, encoded.streams[0].text, logits[masked])
    if encoded.decode.kind == "given":
        return text_answer(encoded.answer, _scored(whole, encoded))
    decoded = encode(whole, request)
    return text_answer(decoded.answer, decoded.decode)


def _decoding_check(predictions: list[Prediction], decode: DecodeLog, encoded: EncodedText) -> list[Check]:
    """Compare the log-probability summed up while decoding, with cached keys, with that of the single forward pass."""
    if decode.kind not in ("beam", "sample"):
        return []
    log_probs = [p.actual.log_prob for p in predictions[encoded.log_start :] if p.actual is not None]
    best = decode.hypotheses[0]
    if len(log_probs) != len(best.ids) + best.finished or not best.log_prob:
        return []
    value = abs(math.fsum(log_probs) - best.log_prob)
    tolerance = 1e-4 * max(1.0, abs(best.log_prob))
    meaning = (
        "The difference between the log-probability that decoding summed up, with cached keys and values, and that of "
        "this single forward pass over the finished text."
    )
    return [Check("decoding against this pass", value, tolerance, value <= tolerance, meaning)]


def _omitted(records: RecordStore, streams: Sequence[Stream]) -> list[Omitted]:
    """Return what is not shown of a long text, and why."""
    if not records.layered:
        return []
    why = (
        f"the text has {max(map(len, streams))} tokens, more than {MAX_FULL_TOKENS}: opening another layer runs the "
        "model again, with the same results"
    )
    return [{"what": "one layer's tensors are held at a time", "why": why}]

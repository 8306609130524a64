"""Explain one text: `explain` returns an `Explanation`, with tensors, attributions, figures and pages as methods.

An explanation is frozen data: a text, the model's predictions, and every tensor of the forward pass. What is computed
from it are functions in other modules, which take it as their first argument; its methods import them when they are
called, so that these modules can name the class.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from glassformer.config.recipes import check_type
from glassformer.decode.search import Hypothesis, length_penalties
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.capture.sites import Check
from glassformer.explain.capture.slices import sliced
from glassformer.explain.inputs import (
    Answer,
    DecodeLog,
    EncodedText,
    Prediction,
    answer_without_decoding,
    encode,
    logged,
    output_of,
    rows_of,
    text_answer,
    top_predictions,
)
from glassformer.explain.one_label import looked_at
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import MODEL, Labels, Subject, View
from glassformer.explain.trace import Trace, record
from glassformer.models.ensemble import members_of
from glassformer.text.answers import KINDS
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.device import tuned
from glassformer.utils.formatting import shortened

if TYPE_CHECKING:
    from glassformer.explain.attribution import Attribution
    from glassformer.explain.edits.effects import Sweep, WhatIf
    from glassformer.explain.edits.sweeps import SweepKind
    from glassformer.explain.figures import ExplanationPlots
    from glassformer.explain.learn.learning import LearningFacts
    from glassformer.explain.page.manifest import Manifest

__all__ = ["Explanation", "TraceRequest", "explain"]

SECOND, SECOND_HINT = "the explanation of a second text", 'as in: run.explain("the second text")'


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation(EncodedText):
    """The explanation of one text, with the fields of `EncodedText`.

    Attributes:
        subject: what is explained of a run: its weights, one member of an ensemble, one label or word, and their task.
        request: the request that was answered.
        id: the name of this explanation on the page.
        predictions: the prediction at each position; empty for a bare encoder, which predicts nothing, and for a
            regressor, whose answer is a number.
        answer: the output in one line, with its probability.
        temperature: of a classifier the one that was fitted on the validation texts, to the weights that are explained;
            None where none was.
        random_drops: the drops under random rankings of words so far, by what is followed.
        together: the answer of all members of an ensemble together; None for a single model.
        records: every tensor by id, a mapping like a trace.
        checks: comparisons of two computations that must agree.
        seconds: the time it took.
        edited: what the edits of the forward pass change; None without edits.
        base: the explanation of the same text without the edits of the request; None without edits.
        other: the explanation of the second text of the request, for =B.
        learning: the loss of the answer to learn, its gradients, and what learning it changes; None without one.
        update: the last step of the optimizer, as `Learner.update`; empty without one.
    """

    subject: View
    request: TraceRequest
    id: str
    predictions: list[Prediction]
    answer: Answer
    together: Answer | None
    records: Trace
    checks: list[Check]
    seconds: float
    edited: WhatIf | None = None
    base: Explanation | None = None
    other: Explanation | None = None
    learning: LearningFacts | None = None
    update: dict[str, Tensor] = field(default_factory=dict)
    temperature: float | None = None
    random_drops: dict[Any, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        answer = together_and_own(self.subject, self.together, self.answer)
        return f"<Explanation of {shortened(self.request.text, 60)!r}: {answer}; {len(self.records)} tensors>"

    @property
    def labels(self) -> Labels | None:
        """Return of a model of several labels all of them, and which is looked at, of a tagger the words."""
        return self.subject.look and self.subject.look.labels

    @property
    def run(self) -> Subject:
        """Return the run that was asked."""
        return self.subject.run

    @property
    def is_classifier(self) -> bool:
        """Return True if there is one prediction for the whole text, False if there is one per token."""
        return bool(self.predictions) and self.predictions[0].position is None

    @property
    def is_number(self) -> bool:
        """Return True if the answer is a number: there is one output, and no class or token."""
        return self.subject.task.explain_as == "regressor"

    def check_has_answer(self) -> None:
        """Check that the model predicts a class, tokens or a number; raise UsageError of a bare encoder."""
        if not self.predictions and not self.is_number:
            hint = "edit a step, as in encoder.0.self.head1=0, or train a classifier from it: --init-from"
            raise UsageError("a bare encoder gives a vector, and no answer to explain", hint)

    @property
    def answered(self) -> list[int]:
        """Return the indices of the predictions that make the answer: `generated`, or that of a classifier."""
        return [0] if self.is_classifier else self.generated

    @property
    def generated(self) -> list[int]:
        """Return the indices of the predictions of generated tokens, of a given translation, or of masked tokens.

        Of a masked language model these are all tokens where none is masked.
        """
        if self.decode.masked:
            return self.decode.masked
        positions = enumerate(p.position for p in self.predictions)
        return [i for i, position in positions if position is not None and position >= self.decode.first]

    def manifest(self) -> Manifest:
        """Return all that the page needs except tensors, as JSON data."""
        from glassformer.explain.page.manifest import manifest

        return manifest(self)

    def tensor(self, id: str, slice: str = "") -> np.ndarray:
        """Return the values of a step or parameter as a numpy array, or a slice of them, "head:3;token:0-50".

        Raises:
            UsageError: there is no such tensor, or no such slice of it.
        """
        check_type(slice, str, "a slice as text", 'as in: tensor("encoder.1.self.weights", "head:0")')
        if (id := str(id)) in self.update:
            axes = self.records.params[id.rpartition(".")[0]]
            return sliced(self.update[id], axes, slice)
        return self.records.tensor(id, slice)

    def __getitem__(self, id: str) -> np.ndarray:
        """Return `tensor` of a step or parameter: `e["encoder.1.self.weights"]`."""
        return self.tensor(id)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the steps in order of computation: what `e[…]` takes."""
        return iter(self.records)

    @property
    def trace(self) -> Trace:
        """Return the trace of the forward pass."""
        return self.records

    def attribute(self, method: str = "erase", **request: Any) -> Attribution:
        """Return the attribution of one prediction to the words; the result says of which, as `prediction`.

        Where none is named it is the class, or the token of the answer that the model is least certain of.

        Args:
            method: "erase" (leave one word out) or "integrated_gradients".
            request: `prediction`, an index into `predictions`; `target`, a class or token id; `foil`, its contrast.

        Raises:
            UsageError: the explanation has edits; or the prediction, class or token does not exist.
        """
        from glassformer.explain.attribution import AttributeRequest, attribute

        if request.get("prediction") is None and self.answered:
            following = {i: self.predictions[i].actual or self.predictions[i].top[0] for i in self.answered}
            request["prediction"] = min(following, key=lambda i: following[i].log_prob)
        with tuned(self.subject.device):
            return attribute(self, AttributeRequest.from_dict({"method": method, **request}))

    def what_if(self, *edits: str, other: Explanation | None = None) -> WhatIf:
        """Return what the model predicts when steps are replaced: `e.what_if("decoder.1.cross.head2=0")`.

        Args:
            edits: edits as text: a step, a slice of it, and `=NUMBER`, `*NUMBER`, `=B`, `=blocked` or `=skip`; see
                `explain/edits/grammar.py`.
            other: the explanation of a second text by the same model, whose values =B takes.

        The edits of this explanation, if it has any, stay in both passes that are compared. Sweeps do the
        same.

        Raises:
            UsageError: an edit is malformed, names no step, does not fit it or never acts; or the text has more than
                128 tokens.
        """
        from glassformer.explain.edits.effects import what_if

        check_type(other, (Explanation, NoneType), SECOND, SECOND_HINT)
        return what_if(self, edits, other)

    def sweep(self, kind: SweepKind, other: Explanation | None = None, prediction: int | None = None) -> Sweep:
        """Return what the same kind of edit changes all over the model: `e.sweep("parts")`.

        Args:
            kind: "parts": each head and feed-forward block off, and each head alone; "keys": each head kept from
                attending to each token; "layers": the later layers skipped, after each; "contributions": the parts
                whose sum is the logit of a prediction minus that of its contrast, or of a regressor its number minus
                the mean of the training numbers; "states": each state of the residual stream exchanged with a second
                text; "checkpoints": the edits of this explanation at every checkpoint of its run.
            other: for "states" the explanation of a second text with another answer.
            prediction: for "contributions" the index of the prediction, by default the first generated token.

        Raises:
            UsageError: there is no such kind, or it does not apply to this text.
        """
        from glassformer.explain.edits.sweeps import sweep

        check_type(other, (Explanation, NoneType), SECOND, SECOND_HINT)
        if prediction is not None:
            last = max(0, len(self.predictions) - 1)
            check_type(prediction, Integral, "the index of a prediction", f"from 0 to {last}")
            prediction = int(prediction)
        return sweep(self, kind, other, prediction)

    @property
    def plot(self) -> ExplanationPlots:
        """Return the figures of this explanation: `explanation.plot.attribution()`."""
        from glassformer.explain.figures import ExplanationPlots

        return ExplanationPlots(self)

    def save(self, path: str | Path) -> None:
        """Write the page with this explanation as one HTML file."""
        from glassformer.explain.page.saved_page import saved_page_html

        hint = 'as in: explanation.save("page.html")'
        check_type(path, (str, PathLike), "the path of an .html file", hint)
        if not Path(path).name:
            raise UsageError(f"expected the path of an .html file, not {str(path)!r}", hint)
        atomic_write_text(Path(path), saved_page_html(self)[0])

    def keep(self, out: str | Path) -> Path:
        """Write the model that has learned an answer (`run.learn`) as a run without a log, and return its folder."""
        from glassformer.explain.learn.learning import keep

        return keep(self, out)


def explain(subject: Subject, request: TraceRequest | str, *, trace_id: str = "t1") -> Explanation:
    """Return the explanation of one text: encode and decode it as `predict` would, then record one forward pass.

    Args:
        subject: a loaded `Run`.
        request: the text, or a whole request.
        trace_id: the name of this explanation on the page.

    Raises:
        UsageError: the request does not suit this task, vocabulary or context; or an edit does not fit the text.
        CheckpointError: the requested checkpoint is damaged.
        DivergedError: the model's logits are NaN or infinite.
    """
    request = TraceRequest(request) if isinstance(request, str) else request
    if request.answer is not None:
        from glassformer.explain.learn.learning import explain_learning

        return explain_learning(subject, request, trace_id)
    if request.edits:
        from glassformer.explain.edits.effects import explain_edited

        return explain_edited(subject, request, trace_id)
    return compute_explanation(subject, request, trace_id)


def compute_explanation(run: Subject, request: TraceRequest, trace_id: str = "t1") -> Explanation:
    """Encode and decode a text as `predict` would, record one forward pass, and return all that is known of it."""
    started = time.perf_counter()
    with tuned(run.device):
        view = looked_at(run, request)
        encoded = encode(view, request)
        records = record(view.model, encoded.model_inputs)
        return explain_encoded(view, request, encoded, records, trace_id, started)


def explain_encoded(
    view: View, request: TraceRequest, encoded: EncodedText, records: Trace, trace_id: str, started: float
) -> Explanation:
    """Return what is known of an encoded text, given the records of its forward pass.

    Args:
        view: what is explained.
        request: the request.
        encoded: the text.
        records: the records of the pass.
        trace_id: the name of the explanation on the page.
        started: when the work began, on `time.perf_counter`.
    """
    output, n = output_of(records), len(encoded.positions)
    predictions = top_predictions(view.task, rows_of(output)[:n], encoded.positions, encoded.following)
    (decode, answer), together, warnings = _answered(view, encoded, output), None, encoded.warnings
    if view.together is not None:
        together = _answer_together(view.together, request, encoded)
        warnings = [*warnings, together_and_own(view, together, answer)]
    if getattr(view.run, "precision", "fp32") != "fp32":
        warnings = [*warnings, "`predict` computes in bf16, and everything here is fp32: the third digit may differ"]
    # Of an ensemble the temperature is of its mean probabilities; it is of neither other weights nor what has learned.
    fits = view.task.explain_as in KINDS and view.together is None and view.checkpoint == MODEL and not request.answer
    return Explanation(
        **vars(encoded) | {"decode": decode, "warnings": warnings},
        subject=view,
        request=request,
        id=trace_id,
        predictions=predictions,
        answer=answer,
        together=together,
        records=records,
        checks=records.checks,
        seconds=time.perf_counter() - started,
        temperature=view.run.task.decision.temperature if fits else None,
    )


def together_and_own(view: View, together: Answer | None, own: Answer) -> str:
    """Return the answer of the model that is explained, in one line, after that of all members of an ensemble."""
    one, *all_of = (f"{shortened(a['headline'], 80)} ({a['detail']})" for a in (own, together) if a is not None)
    if not all_of:
        return one
    n = len(members_of(view.weights))
    return f"all {n} models together answer {all_of[0]}; member {view.member}, shown here, answers {one}"


def compute_decoding(subject: Subject, request: TraceRequest) -> tuple[DecodeLog, Answer, list[Stream]]:
    """Return how a text is decoded, the answer and the tokens, without recording where that is possible."""
    if request.edits:
        raise UsageError("decoding is logged without edits only", "trace the text with its edits instead")
    if subject.task.explain_as not in ("translator", "language_model") or request.target is not None:
        explanation = compute_explanation(subject, request)
        return explanation.decode, explanation.answer, explanation.streams
    with tuned(subject.device):
        encoded = encode(looked_at(subject, request), request)
    return encoded.decode, text_answer(encoded.text, encoded.decode), encoded.streams


def log_prob_of(encoded: EncodedText, output: Tensor) -> float:
    """Return the log-probability of a text that was decoded or given, its prefix included, in the output for it."""
    first = 0 if len(encoded.streams) > 1 else encoded.decode.first
    rows = zip(output.double().log_softmax(dim=-1)[first:], encoded.following[first:], strict=True)
    return math.fsum(row[token].item() for row, token in rows if token is not None)


def _answered(view: View, encoded: EncodedText, output: Tensor | None) -> tuple[DecodeLog, Answer]:
    """Return the log of decoding and what a model answers, given its output; None where the text was decoded.

    Of a given target, or of the answer that a prompt should have, the log has the model's score.
    """
    decode = encoded.decode
    if output is not None and decode.kind == "given":
        ids = [token for token in encoded.following[decode.first :] if token is not None]
        log_prob = log_prob_of(encoded, output)
        score = log_prob / length_penalties(len(ids), decode.settings.length_penalty)[len(ids)]
        finished = ids[-1] == view.task.tokenizer.of_targets.eos_id
        target = Hypothesis(ids[:-1] if finished else ids, score, log_prob, finished)
        decode = replace(decode, hypotheses=[logged(target, view.task.tokenizer)])
    if output is None or decode.hypotheses:
        return decode, text_answer(encoded.text, decode)
    return decode, answer_without_decoding(view, encoded.streams[0].text, decode.masked, output)


def _answer_together(all_of: View, request: TraceRequest, encoded: EncodedText) -> Answer:
    """Return the answer of all members of an ensemble."""
    output = None
    if encoded.decode.kind in ("none", "given"):
        with exact_no_grad(all_of.model):
            output = exact_forward(all_of.model, **encoded.model_inputs)[0]
    else:
        encoded = encode(all_of, request)
    return _answered(all_of, encoded, output)[1]

"""`explain`: one text through a trained model, with everything that can be said about it.

An `Explanation` holds the tokens, the tensors, the predictions and how the answer was decoded; `manifest()` is
all of it but the tensors, as JSON. Attribution, figures and pages are made from it elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.decode import Hypothesis
from glassformer.decode.hypothesis import length_norms
from glassformer.errors import UsageError
from glassformer.explain import manifest as form
from glassformer.explain.attribution.alignment import Reading, measure_readings
from glassformer.explain.capture.exactly import asking
from glassformer.explain.capture.records import Check
from glassformer.explain.checkpoints import Subject, at_checkpoint
from glassformer.explain.decode_log import DecodeLog, LoggedHypothesis
from glassformer.explain.facts import model_facts
from glassformer.explain.inputs import Prepared, prepare
from glassformer.explain.members import Together, answer_of_all, at_member
from glassformer.explain.predictions import Prediction, predict
from glassformer.explain.request import TraceRequest
from glassformer.explain.tensors import Records, take, to_numpy
from glassformer.explain.trace import Trace
from glassformer.models.ensemble import Ensemble
from glassformer.runtime import tuned

__all__ = ["Explanation", "TraceRequest", "decode", "explain"]


def explain(subject: Subject, request: TraceRequest | str, *, trace_id: str = "t1") -> Explanation:
    """Look at one text as the model does: encode and decode it as `predict` would, then capture one pass.

    Args:
        subject: a loaded `Run`.
        request: the text, or a whole request.
        trace_id: what a page calls this explanation.

    Raises:
        UsageError: the request asks what this task, vocabulary or context cannot give.
        CheckpointError: the checkpoint asked for is damaged.
        DivergedError: the model's logits are not numbers.
    """
    began = time.perf_counter()
    request = TraceRequest(request) if isinstance(request, str) else request
    with tuned(subject.device):
        whole = at_checkpoint(subject, request.checkpoint)
        subject = at_member(whole, request.member)
        prepared = prepare(subject, request)
        lengths = {stream.name: len(stream) for stream in prepared.streams}
        records = Records(subject.model, prepared.model_inputs, lengths, request.window_start)
        explanation = Explanation(subject, request, trace_id, prepared, records)
        if isinstance(whole.model, Ensemble):
            answer = answer_of_all(subject.task, whole.model, prepared.model_inputs)
            explanation.is_one_of(len(whole.model.members), answer)
    explanation.seconds = time.perf_counter() - began
    return explanation


def decode(subject: Subject, request: TraceRequest) -> dict[str, Any]:
    """{"decode", "answer", "streams"} of a manifest, without looking inside where that can be spared."""
    if subject.task.name != "classify" and request.target is None:
        with tuned(subject.device):
            subject = at_checkpoint(subject, request.checkpoint)
            prepared = prepare(subject, request)
        answer = form.answer_of(subject.task.name, [], prepared.decode, prepared.answer)
        log, streams = prepared.decode.to_json(), [stream.to_json() for stream in prepared.streams]
        return {"decode": log, "answer": answer, "streams": streams}
    told = explain(subject, request).manifest()
    return {name: told[name] for name in ("decode", "answer", "streams")}


class Explanation:
    """One text, seen through.

    Attributes:
        subject: the model (of an ensemble one member) and its task, with the weights that were asked for.
        request: what was asked. id: what a page calls this.
        model_inputs: what the model was called with, a batch of one: {"ids"} (and "padding_mask" where there
            is padding, "spelling" where n-grams are read), or {"src", "tgt_in"} (and "src_padding_mask").
        streams: the tokens. predictions: what the model says after each position.
        decode: how the target came about. wrote: where the model's own writing begins. answer: {"headline", "detail"}.
        together: which member of an ensemble this is, and its own answer, while `answer` is that of all; else None.
        records: every tensor by id, a mapping like a trace. window: positions shown of long streams, or None.
        checks: comparisons of two ways to compute the same. omitted: what is not shown, and why.
        warnings: what to know about the input. seconds: how long it took.
    """

    def __init__(
        self, subject: Subject, request: TraceRequest, id: str, prepared: Prepared, records: Records
    ) -> None:
        self.subject, self.request, self.id, self.records = subject, request, id, records
        self.model_inputs: dict[str, Any] = prepared.model_inputs
        self.streams, self.warnings, self.window = prepared.streams, prepared.warnings, records.window
        self.wrote = prepared.wrote
        self.predictions: list[Prediction] = self._predictions(prepared)
        self.decode = self._scored(prepared) if prepared.decode.kind == "given" else prepared.decode
        self.answer = form.answer_of(subject.task.name, self.predictions, self.decode, prepared.answer)
        self.together: Together | None = None
        self.checks: list[Check] = [*records.checks, *self._decoding_check()]
        self.omitted = form.omitted(records, {stream.name: len(stream) for stream in self.streams})
        self.seconds = 0.0
        self._manifest: dict[str, Any] | None = None
        self._readings: list[Reading] | None = None

    def is_one_of(self, size: int, answer: dict[str, str]) -> None:
        """Tell that this model is one of an ensemble, whose answer is the run's."""
        self.together = Together(size, self.request.member, self.answer)
        self.answer = answer
        self.warnings = [*self.warnings, self.together.sentence(answer)]

    def manifest(self) -> dict[str, Any]:
        """`Manifest` of web/src/types.ts, ready for JSON; made once, so not to be changed."""
        if self._manifest is None:
            nodes, task = self.records.nodes.values(), self.subject.task.name
            self._manifest = {
                "format": form.FORMAT,
                "id": self.id,
                "model": model_facts(self.subject, self.request.checkpoint),
                "request": self.request.to_json(),
                "streams": [stream.to_json() for stream in self.streams],
                "answer": self.answer,
                "together": self.together and self.together.to_json(),
                "nodes": [form.node_json(node) for node in nodes],
                "params": form.params_json(self.subject.model, task, nodes),
                "predictions": [prediction.to_json() for prediction in self.predictions],
                "decode": self.decode.to_json(),
                "wrote": asdict(self.wrote),
                "checks": form.checks_json(self.checks),
                "omitted": self.omitted,
                "warnings": self.warnings,
                "window": None if self.window is None else list(self.window),
                "seconds": self.seconds,
            }
        return self._manifest

    def tensor(self, id: str, slice: str = "") -> np.ndarray:
        """The values of a node or a parameter, or a slice of them; within a window, counted from its start.

        Args:
            id: as in `manifest()["nodes"]` or `["params"]`.
            slice: "head:3", "token:0-50", "vocab:1.5.9", joined by ";": see `tensors.take`.

        Raises:
            UsageError: there is no such tensor, or no such slice of it.
        """
        held = self.held(id, slice)
        if held is not None:
            return held
        record = self.records[id]
        return to_numpy(take(record.value, [axis.name for axis in record.axes], slice))

    def held(self, id: str, slice: str = "") -> np.ndarray | None:
        """`tensor`, or None where it would take another forward pass; any thread may ask.

        Raises:
            UsageError: as `tensor` does.
        """
        if id in self.records.nodes:
            record = self.records.held(id)
            return record and to_numpy(take(record.value, [axis.name for axis in record.axes], slice))
        params = self.manifest()["params"]
        if id not in params:
            raise UsageError(f"there is no tensor or parameter {id[:80]!r} in this trace")
        axes = [axis["name"] for axis in params[id]["axes"]]
        return to_numpy(take(form.param(self.subject.model, id), axes, slice))

    @property
    def trace(self) -> Trace:
        """The trace of the forward pass, as long as the text is short enough to be kept whole.

        Raises:
            UsageError: it is longer; `records` has its tensors one layer at a time.
        """
        if self.records.trace is None:
            raise UsageError("this text is too long for one trace", "look at `records` instead")
        return self.records.trace

    def attribute(self, method: str = "erase", **request: Any) -> Any:
        """Why the model said that, see `attribution.attribute`; fields of `AttributeRequest` by name."""
        from glassformer.explain.attribution.attribute import AttributeRequest, attribute

        wanted = {"method": method, "trace": self.id} | request
        with tuned(self.subject.device):
            return attribute(self, AttributeRequest.from_dict(wanted))

    def readings(self) -> list[Reading]:
        """Where an alignment can be read, the place that agrees best with erasing first; measured once.

        Raises:
            UsageError: the model is no translator, or the text is too long.
        """
        if self._readings is None:
            with tuned(self.subject.device):
                self._readings = measure_readings(self)
        return self._readings

    @property
    def plot(self) -> Any:
        """Figures of this explanation: `explanation.plot.attribution()`."""
        from glassformer.explain.figures.explanation_plots import ExplanationPlots

        return ExplanationPlots(self)

    def save(self, path: str | Path) -> None:
        """Write the whole page, with this explanation in it, as one HTML file."""
        from glassformer.explain.page.report import write_report

        write_report(Path(path), self)

    def page(self) -> Any:
        """The whole page, to be shown by a notebook's cell: a few seconds of weighing words, a few megabytes."""
        from glassformer.explain.page.notebook import NotebookPage

        return NotebookPage(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, Any]:
        from glassformer.explain.page.notebook import mimebundle

        return mimebundle(self)

    def __repr__(self) -> str:
        answer = " ".join(self.answer.values())
        return f"<Explanation of {self.request.text[:60]!r}: {answer}; {len(self.records)} tensors>"

    def _predictions(self, prepared: Prepared) -> list[Prediction]:
        """Of the positions that are shown."""
        logits = self.records["logits"].value
        positions, following = prepared.positions, prepared.following
        if logits.dim() == 1:
            logits = logits[None]
        elif self.window is not None and len(logits) < len(self.streams[-1]):
            positions, following = positions[slice(*self.window)], following[slice(*self.window)]
        return predict(self.subject.task, logits[: len(positions)], positions, following)

    def _scored(self, prepared: Prepared) -> DecodeLog:
        """The log of a target that was given, with the score the model gives it."""
        with asking(self.subject.model):
            log_probs = self.subject.model(**self.model_inputs)[0].double().log_softmax(dim=-1)
        ids = [token for token in prepared.following if token is not None]
        log_prob = math.fsum(log_probs[i, token].item() for i, token in enumerate(ids))
        penalty = prepared.decode.settings.length_penalty
        score = log_prob / length_norms(len(ids), penalty)[len(ids)]
        told = LoggedHypothesis.of(Hypothesis(ids[:-1], score, log_prob, True), self.subject.task.tokenizer)
        return DecodeLog("given", prepared.decode.settings, [told])

    def _decoding_check(self) -> list[Check]:
        """Whether decoding, step by step with cached keys, and this pass give the answer one probability."""
        if self.decode.kind not in ("beam", "sample") or self.window is not None:
            return []
        first = self.streams[-1].n_given - 1 if self.subject.task.name == "lm" else 0
        passed = [p.actual.log_prob for p in self.predictions[first:] if p.actual is not None]
        decoded = self.decode.hypotheses[0]
        if len(passed) != len(decoded.ids) + decoded.finished or not self.decode.hypotheses[0].log_prob:
            return []
        value = abs(math.fsum(passed) - decoded.log_prob)
        tolerance = 1e-4 * max(1.0, abs(decoded.log_prob))
        meaning = (
            "How far the log-probability that decoding summed up, with keys and values cached, is from that of "
            "this one pass over the finished text."
        )
        return [Check("decoding against this pass", value, tolerance, value <= tolerance, meaning)]

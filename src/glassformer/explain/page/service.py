"""Answer requests about one run: run info, traces, tensors, attributions.

Requests and responses are plain dictionaries or arrays; `server.py` transports them.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.config.fields import number
from glassformer.config.requests import check_request
from glassformer.explain.attribution.alignment import Alignments, readings, readings_json
from glassformer.explain.attribution.attribute import AttributeRequest, EraseRequest, attribute, erase
from glassformer.explain.compute import compute_decoding, compute_explanation
from glassformer.explain.edits.what_if import explain_edited
from glassformer.explain.embedding_view import EmbeddingView, embedding_view
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.manifest import Manifest, manifest
from glassformer.explain.page.responses import RequestError
from glassformer.explain.page.sweep_requests import SweepRequest, run_sweep
from glassformer.explain.request import IDS, TraceRequest
from glassformer.explain.run_info import MAX_TEXT_BYTES, MAX_TRACES, RunInfo, run_info
from glassformer.explain.subject import Subject
from glassformer.explain.tensor_values import get_captured_tensor, get_tensor

_ROW = re.compile("[0-9]{1,10}")


@dataclass(frozen=True)
class NeighboursRequest:
    """The token whose nearest embeddings are asked for."""

    row: int = number(0, IDS)
    """Its position."""

    def __post_init__(self) -> None:
        check_request(self)


class Service:
    """One run and its latest traces.

    Two threads may use it, one for the model and one for captured tensors, which can be read during an attribution.
    A tensor that needs another forward pass is read in the first.

    Args:
        subject: the run.
        start: the requests that the page traces first.
    """

    def __init__(self, subject: Subject, start: Sequence[Mapping[str, Any]] = ()) -> None:
        self.subject, self.start = subject, [dict(request) for request in start]
        self._traces: OrderedDict[str, ExplanationData] = OrderedDict()
        self._numbers = itertools.count(1)
        self._model_lock, self._traces_lock = threading.Lock(), threading.Lock()

    def run(self) -> RunInfo:
        """Return the run info and the first requests."""
        return {**run_info(self.subject), "start": self.start}

    def trace(self, body: dict[str, Any]) -> Manifest:
        """Trace a text and return its manifest."""
        request = _trace_request(body)
        with self._model_lock:
            if request.edits:
                return manifest(self._explain_edited(request))
            return manifest(self._keep(self._explain(self.subject, request)))

    def held(self, trace_id: str, name: str, part: str) -> np.ndarray | None:
        """Return `tensor` without waiting for the model; None where it takes another forward pass."""
        return get_captured_tensor(self._find(trace_id), name, part)

    def tensor(self, trace_id: str, name: str, part: str) -> np.ndarray:
        """Return the values of a node or parameter, or a slice of them."""
        explanation = self._find(trace_id)
        with self._model_lock:
            return get_tensor(explanation, name, part)

    def alignment(self, trace_id: str) -> Alignments:
        """Return the `Alignments` of a translation."""
        explanation = self._find(trace_id)
        with self._model_lock:
            return readings_json(readings(explanation))

    def neighbours(self, trace_id: str, name: str, row: str) -> EmbeddingView:
        """Return the `EmbeddingView` of one row of a lookup."""
        request = NeighboursRequest(int(row) if _ROW.fullmatch(row) else row)  # pyright: ignore[reportArgumentType]
        explanation = self._find(trace_id)
        with self._model_lock:
            return embedding_view(explanation, name, request.row)

    def attribute(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Attribution` for an `AttributeRequest`."""
        request = AttributeRequest.from_dict(body)
        with self._model_lock:
            return attribute(self._find(request.trace), request).to_json()

    def erase(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Erased` for an `EraseRequest`."""
        request = EraseRequest.from_dict(body)
        with self._model_lock:
            return erase(self._find(request.trace), request).to_json()

    def sweep(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the sweep for a `SweepRequest`."""
        request = SweepRequest.from_dict(body)
        with self._model_lock:
            return run_sweep(self.subject, request, self._find).to_json()

    def decode(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return how a text is decoded, without tracing."""
        with self._model_lock:
            return compute_decoding(self.subject, _trace_request(body))

    def _explain(self, subject: Subject, request: TraceRequest) -> ExplanationData:
        """Return the explanation of a request without edits."""
        return compute_explanation(subject, request, f"t{next(self._numbers)}")

    def _explain_edited(self, request: TraceRequest) -> ExplanationData:
        """Return the explanation of a request with edits; that without edits is computed only if it is not kept.

        Where the edits are refused, no trace is kept, and none is dropped.
        """
        computed = []

        def explain(subject: Subject, request: TraceRequest) -> ExplanationData:
            with self._traces_lock:
                kept = next((e for e in self._traces.values() if e.request == request), None)
            if kept is None:
                computed.append(kept := self._explain(subject, request))
            return kept

        edited = explain_edited(self.subject, request, f"t{next(self._numbers)}", explain)
        for explanation in computed:
            self._keep(explanation)
        return self._keep(edited)

    def _keep(self, explanation: ExplanationData) -> ExplanationData:
        """Keep an explanation; the least recently used one is dropped."""
        with self._traces_lock:
            self._traces[explanation.id] = explanation
            while len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)
        return explanation

    def _find(self, trace_id: str) -> ExplanationData:
        with self._traces_lock:
            if trace_id not in self._traces:
                raise RequestError(404, f"there is no trace {trace_id[:40]!r} (any more)", "trace the text again")
            self._traces.move_to_end(trace_id)
            return self._traces[trace_id]


def _trace_request(body: dict[str, Any]) -> TraceRequest:
    """Return a validated trace request.

    Raises:
        UsageError: a field is invalid.
        RequestError: a text is too long.
    """
    request = TraceRequest.from_dict(body)
    for text in (request.text, request.target or "", request.other_text or ""):
        if len(text.encode("utf-8")) > MAX_TEXT_BYTES:
            raise RequestError(413, f"a text must have at most {MAX_TEXT_BYTES:,} bytes", "shorten it, or use Python")
    return request

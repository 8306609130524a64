"""Answer requests about one run: run info, traces, tensors, attributions.

Requests and responses are plain dictionaries or arrays; `server.py` transports them.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassformer.config.fields import number
from glassformer.explain.attribution.alignment import Alignments, readings, readings_json
from glassformer.explain.attribution.attribute import AttributeRequest, EraseRequest, attribute, erase
from glassformer.explain.compute import compute_decoding, compute_explanation
from glassformer.explain.edits.what_if import explain_edited
from glassformer.explain.embedding_view import EmbeddingView, embedding_view
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.manifest import MAX_TEXT_BYTES, MAX_TRACES, Manifest, RunInfo, manifest, run_info
from glassformer.explain.page.responses import RequestError
from glassformer.explain.page.sweep_requests import SweepRequest, run_sweep
from glassformer.explain.request import IDS, Request, TraceRequest
from glassformer.explain.subject import Subject

_ROW = re.compile("[0-9]{1,10}")


@dataclass(frozen=True)
class NeighboursRequest(Request):
    """The token whose nearest embeddings are asked for."""

    row: int = number(0, IDS)
    """Its position."""


class Service:
    """One run and its latest traces.

    All but `held` call the model, or wait for it, and belong in one thread; `held` reads stored tensors in another.

    Args:
        subject: the run.
        start: what the page shows first: explanations, which are kept, or requests.
    """

    def __init__(self, subject: Subject, start: Sequence[Explanation | Mapping[str, Any]] = ()) -> None:
        self.subject = subject
        self.start = [one.request.to_json() if isinstance(one, Explanation) else dict(one) for one in start]
        self._traces: OrderedDict[str, Explanation] = OrderedDict()
        self._traces_lock = threading.Lock()
        self._numbers = itertools.count(1 + len(start))
        for one in start:
            if isinstance(one, Explanation):
                self._keep(*filter(None, (one.base, one.other, one)))

    def run(self) -> RunInfo:
        """Return the run info and the first requests."""
        return {**run_info(self.subject), "start": self.start}

    def trace(self, body: dict[str, Any]) -> Manifest:
        """Trace a text and return its manifest; nothing is computed that is kept.

        Where edits are refused, no trace is kept, and none is dropped.
        """
        request, used = _trace_request(body), list[Explanation]()

        def explain(subject: Subject, request: TraceRequest) -> Explanation:
            used.append(self._like(request) or compute_explanation(subject, request, f"t{next(self._numbers)}"))
            return used[-1]

        if request.edits:
            number = next(self._numbers)
            used.append(self._like(request) or explain_edited(self.subject, request, f"t{number}", explain))
        else:
            explain(self.subject, request)
        self._keep(*used)
        return manifest(used[-1])

    def held(self, trace_id: str, name: str, part: str) -> np.ndarray | None:
        """Return `tensor` without waiting for the model; None where it takes another forward pass."""
        return self._find(trace_id).records.held(name, part)

    def tensor(self, trace_id: str, name: str, part: str) -> np.ndarray:
        """Return the values of a node or parameter, or a slice of them."""
        return self._find(trace_id).records.tensor(name, part)

    def alignment(self, trace_id: str) -> Alignments:
        """Return the `Alignments` of a translation."""
        return readings_json(readings(self._find(trace_id)))

    def neighbours(self, trace_id: str, name: str, row: str) -> EmbeddingView:
        """Return the `EmbeddingView` of one row of a lookup."""
        request = NeighboursRequest(int(row) if _ROW.fullmatch(row) else row)  # pyright: ignore[reportArgumentType]
        return embedding_view(self._find(trace_id), name, request.row)

    def attribute(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Attribution` for an `AttributeRequest`."""
        request = AttributeRequest.from_dict(body)
        return asdict(attribute(self._find(request.trace), request))

    def erase(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Erased` for an `EraseRequest`."""
        request = EraseRequest.from_dict(body)
        return asdict(erase(self._find(request.trace), request))

    def sweep(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the sweep for a `SweepRequest`."""
        return asdict(run_sweep(SweepRequest.from_dict(body), self._find))

    def decode(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return how a text is decoded, without tracing."""
        log, answer, streams = compute_decoding(self.subject, _trace_request(body))
        return {"decode": log.to_json(), "answer": answer, "streams": [stream.to_json() for stream in streams]}

    def _keep(self, *explanations: Explanation) -> None:
        """Keep explanations as those used last; the least recently used are dropped."""
        with self._traces_lock:
            for explanation in explanations:
                self._traces[explanation.id] = explanation
                self._traces.move_to_end(explanation.id)
            while len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)

    def _like(self, request: TraceRequest) -> Explanation | None:
        """Return the kept explanation of a request."""
        with self._traces_lock:
            return next((e for e in self._traces.values() if e.request == request), None)

    def _find(self, trace_id: str) -> Explanation:
        with self._traces_lock:
            if trace_id not in self._traces:
                raise RequestError(404, f"there is no trace {trace_id[:40]!r} (any more)", "trace the text again")
            self._traces.move_to_end(trace_id)
            return self._traces[trace_id]


def _trace_request(body: dict[str, Any]) -> TraceRequest:
    """Return a validated trace request."""
    request = TraceRequest.from_dict(body)
    for text in (request.text, request.target or "", request.other_text or ""):
        if len(text.encode("utf-8")) > MAX_TEXT_BYTES:
            raise RequestError(413, f"a text must have at most {MAX_TEXT_BYTES:,} bytes", "shorten it, or use Python")
    return request

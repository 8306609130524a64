"""What is asked about one run, and what is answered: the run's facts, traces, tensors, weights of words.

Questions come as plain dictionaries and answers leave as plain dictionaries or arrays; how they travel is
`server.py`'s business.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.explain.attribution.alignment import Alignments, readings, readings_json
from glassformer.explain.attribution.attribute import AttributeRequest, EraseRequest, attribute, erase
from glassformer.explain.compute import compute_decoding, compute_explanation
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.manifest import Manifest, manifest
from glassformer.explain.page.responses import RequestError
from glassformer.explain.request import TraceRequest
from glassformer.explain.run_info import MAX_TEXT_BYTES, MAX_TRACES, RunInfo, run_info
from glassformer.explain.subject import Subject
from glassformer.explain.tensor_values import get_captured_tensor, get_tensor


class Service:
    """What is known about one run, and the newest of its traces.

    Two threads may ask at once, one for work with the model and one for tensors: what has been captured can
    be looked at while words are being weighed. Where looking needs another forward pass, that is work with the
    model, too, and nobody who looks at something else waits for it.

    Args:
        subject: the run.
        start: what the page traces first.
    """

    def __init__(self, subject: Subject, start: Sequence[Mapping[str, Any]] = ()) -> None:
        self.subject, self.start = subject, [dict(request) for request in start]
        self._traces: OrderedDict[str, ExplanationData] = OrderedDict()
        self._numbers = itertools.count(1)
        self._model, self._shelf = threading.Lock(), threading.Lock()

    def run(self) -> RunInfo:
        """The run's facts, and what to show first."""
        return {**run_info(self.subject), "start": self.start}

    def trace(self, question: dict[str, Any]) -> Manifest:
        """Trace a text, keep the trace (and forget the one not looked at for longest), return its manifest."""
        request = _traceable(question)
        with self._model:
            explanation = compute_explanation(self.subject, request, f"t{next(self._numbers)}")
        told = manifest(explanation)
        with self._shelf:
            self._traces[explanation.id] = explanation
            while len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)
        return told

    def held(self, trace_id: str, name: str, part: str) -> np.ndarray | None:
        """`tensor`, or None where that takes another forward pass: this never waits for the model."""
        return get_captured_tensor(self._find(trace_id), name, part)

    def tensor(self, trace_id: str, name: str, part: str) -> np.ndarray:
        """The values of a node or a parameter, or a slice of them."""
        explanation = self._find(trace_id)
        with self._model:
            return get_tensor(explanation, name, part)

    def alignment(self, trace_id: str) -> Alignments:
        """`Alignments`: how well each way to read a translation's alignment agrees with erasing."""
        explanation = self._find(trace_id)
        with self._model:
            return readings_json(readings(explanation))

    def attribute(self, question: dict[str, Any]) -> dict[str, Any]:
        """`Attribution` of an `AttributeRequest`."""
        request = AttributeRequest.from_dict(question)
        with self._model:
            return attribute(self._find(request.trace), request).to_json()

    def erase(self, question: dict[str, Any]) -> dict[str, Any]:
        """`Erased` of an `EraseRequest`."""
        request = EraseRequest.from_dict(question)
        with self._model:
            return erase(self._find(request.trace), request).to_json()

    def decode(self, question: dict[str, Any]) -> dict[str, Any]:
        """How the text would be decoded, without looking inside."""
        with self._model:
            return compute_decoding(self.subject, _traceable(question))

    def _find(self, trace_id: str) -> ExplanationData:
        with self._shelf:
            if trace_id not in self._traces:
                raise RequestError(404, f"there is no trace {trace_id[:40]!r} (any more)", "trace the text again")
            self._traces.move_to_end(trace_id)
            return self._traces[trace_id]


def _traceable(question: dict[str, Any]) -> TraceRequest:
    """A checked request to trace.

    Raises:
        UsageError: a field is not as it should be. RequestError: a text is too long.
    """
    request = TraceRequest.from_dict(question)
    for text in (request.text, request.target or ""):
        if len(text.encode("utf-8")) > MAX_TEXT_BYTES:
            raise RequestError(413, f"a text has at most {MAX_TEXT_BYTES:,} bytes here", "cut it, or ask in Python")
    return request

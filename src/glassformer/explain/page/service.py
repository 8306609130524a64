"""Answer requests about one run: run info, traces, tensors, attributions.

Requests and responses are plain dictionaries or arrays; `server.py` transports them.

Recording a forward pass and computing gradients are not safe in two threads at once, which would also share the same
cores. The queue is bounded, so that many requests cost no memory: requests beyond it are refused.
"""

from __future__ import annotations

import itertools
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, TypeVar

import numpy as np
from msgspec import Meta

from glassformer.errors import UsageError
from glassformer.explain.attribution import AttributeRequest, attribute, erase
from glassformer.explain.edits.sweeps import SweepKind, sweep
from glassformer.explain.edits.what_if import explain_edited
from glassformer.explain.explanation import Explanation, compute_decoding, compute_explanation
from glassformer.explain.learn.learning import explain_learning
from glassformer.explain.page.manifest import (
    MAX_TEXT_BYTES,
    MAX_TRACES,
    Manifest,
    RunInfo,
    decode_json,
    manifest,
    plain,
    run_info,
)
from glassformer.explain.page.responses import RequestError
from glassformer.explain.page.saved_page import saved_page_html, saved_training
from glassformer.explain.request import Id, Request, ShortText, TraceRequest
from glassformer.explain.subject import Subject
from glassformer.explain.watch.probes import MAX_PROBES, ProbeAnswer, ProbeRequest, ProbeTexts, default_texts, probe
from glassformer.explain.watch.training import Action, Followed, Training, TrainingNow
from glassformer.utils.cpu_threads import let_go

N_WAITING = 32
"""Maximum number of waiting jobs; a page requests all tensors of a screen at once."""

Result = TypeVar("Result")


class Worker:
    """A thread that runs jobs in order; the thread that creates it should compute nothing itself."""

    def __init__(self, n_waiting: int = N_WAITING) -> None:
        let_go()  # of the threads that loading a model left behind
        self._queue: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue(n_waiting)
        # A daemon: work that takes long must not keep a process that was asked to stop.
        self._thread = threading.Thread(target=self._work, name="glassformer-worker", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Queue a job; cancelling its future before its turn removes it."""
        future: Future[Result] = Future()
        try:
            self._queue.put_nowait((job, future))
        except queue.Full:
            raise RequestError(503, "too many requests are waiting", "try again in a moment", retry_after=2) from None
        return future

    def close(self, wait_seconds: float = 2.0) -> None:
        """Drop the waiting jobs, and wait a few seconds for the current one."""
        with suppress(queue.Empty):
            while waiting := self._queue.get_nowait():
                waiting[1].cancel()
        self._queue.put(None)
        self._thread.join(wait_seconds)

    def _work(self) -> None:
        while waiting := self._queue.get():
            job, future = waiting
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:
                    future.set_exception(error)
            let_go()  # else the threads of one worker slow those of the other
            del waiting, job, future  # an answer may not be kept alive until the next question


@dataclass(frozen=True)
class SweepRequest(Request):
    """What to edit in turn."""

    trace: ShortText
    """Id of the trace; for "checkpoints" of one with edits."""
    kind: SweepKind
    """As of `Explanation.sweep`."""
    other: ShortText | None = None
    """Id of the second trace, for "states"."""
    prediction: Id | None = None
    """Index of the prediction, for "contributions"; default: the first generated token."""


@dataclass(frozen=True)
class ControlRequest(Request):
    """What the training is asked for."""

    action: Action


@dataclass(frozen=True)
class SaveRequest(Request):
    """What is saved as a page: the requests of one or two texts, the address it begins at, texts of the training."""

    request: dict[str, Any]
    other: dict[str, Any] | None = None
    view: Annotated[str, Meta(max_length=10_000)] = ""
    training: Annotated[list[str], Meta(max_length=MAX_PROBES)] | None = None


SAVE_SECONDS = 10.0
"""Time limit for the attributions of a page saved from the page, where other requests wait meanwhile."""


class SavedPageFile(TypedDict):
    """A saved page as a file to download."""

    page: str
    """The HTML of the file."""
    dropped: list[str]
    """What the file lacks, a sentence each."""


class Service:
    """One run and its latest traces.

    All but `held` call the model, or wait for it, and belong in one thread; `held` reads stored tensors in another.

    Args:
        subject: the run; of one that is followed, what gives it, with its training.
        start: what the page shows first: explanations, which are kept, or requests.
    """

    def __init__(self, subject: Subject | Followed, start: Sequence[Explanation | Mapping[str, Any]] = ()) -> None:
        self.followed = subject if isinstance(subject, Followed) else None
        self._subject = None if isinstance(subject, Followed) else subject
        self._training = self.followed.training if self.followed else Training(subject.path)
        self.start = [one.request.to_json() if isinstance(one, Explanation) else dict(one) for one in start]
        self._traces: list[Explanation] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1 + len(start))
        for one in start:
            if isinstance(one, Explanation):
                self._keep(*filter(None, (one.base, one.other, one)))

    @property
    def subject(self) -> Subject:
        """Return the run; of one that is followed the model that the page was loaded with."""
        if self._subject is None:
            assert self.followed is not None
            self._subject = self.followed.subject()
        return self._subject

    def run(self) -> RunInfo:
        """Return the run info and the first requests; of a run that is followed, with the newest model."""
        if self.followed is not None:
            before, self._subject = self._subject, self.followed.subject()
            if before is not self._subject:  # what was computed with earlier weights is no answer of these
                self._traces = []
        info = run_info(self.subject)
        if self.followed is not None and not self.start and not info["examples"]:  # it is not evaluated yet
            self.start = [{"text": text} for text in default_texts(self.subject)["texts"][:1]]
        return {**info, "start": self.start}

    def training(self, after: str) -> TrainingNow:
        """Return the training so far, its steps after one of them; nothing is computed by the model."""
        if not re.fullmatch("[0-9]{0,10}", after):
            raise UsageError(f"request: after must be a step; got {after[:40]!r}")
        return self._training.now(int(after or "0"))

    def control(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the training for something, and return nothing."""
        self._training.request(ControlRequest.from_dict(body).action)
        return {}

    def probes(self) -> ProbeTexts:
        """Return the texts that the screen Training begins with."""
        return default_texts(self.subject)

    def probe(self, body: dict[str, Any]) -> ProbeAnswer:
        """Return the answer of a snapshot to a text; nothing is kept."""
        return probe(self.subject, ProbeRequest.from_dict(body))

    def trace(self, body: dict[str, Any]) -> Manifest:
        """Trace a text and return its manifest; nothing is computed that is kept.

        Where edits are refused, no trace is kept, and none is dropped.
        """
        return manifest(self._explain(_trace_request(body)))

    def _explain(self, request: TraceRequest) -> Explanation:
        """Return the explanation of a request; it is kept, and so are those it is computed from."""
        used = list[Explanation]()

        def explain(subject: Subject, request: TraceRequest) -> Explanation:
            used.append(self._like(request) or compute_explanation(subject, request, f"t{next(self._numbers)}"))
            return used[-1]

        if request.answer is not None:
            learned = self._like(request) or explain_learning(self.subject, request, f"t{next(self._numbers)}")
            base = learned.base and (self._like(learned.base.request) or learned.base)  # the page asks for that one
            used += [*filter(None, (base, learned))]
        elif request.edits:
            number = next(self._numbers)
            used.append(self._like(request) or explain_edited(self.subject, request, f"t{number}", explain))
        else:
            explain(self.subject, request)
        self._keep(*used)
        return used[-1]

    def save(self, body: dict[str, Any]) -> SavedPageFile:
        """Return the file that `glassformer explain --out` writes, of a text with its edits and a second text.

        Of long translations it has fewer attributions, as it takes less time.
        The page begins at the address `view`. Requests are sent rather than ids of traces, which may be dropped.
        """
        wanted, dropped = SaveRequest.from_dict(body), list[str]()
        shown: dict[str, Any] = {"view": wanted.view} if wanted.view else {}
        first = self._explain(_trace_request(wanted.request))
        base = first.base or first
        second = None if wanted.other is None else self._explain(_trace_request(wanted.other).without_edits())
        other = None if second is None or second.request == base.request else second
        edited = None if first.base is None else first
        if wanted.training is not None:
            shown["training"] = saved_training(self.subject, self._training, dropped, wanted.training, SAVE_SECONDS)
        page, lacks = saved_page_html(base, edited=edited, other=other, seconds=SAVE_SECONDS, **shown)
        return {"page": page, "dropped": [*dropped, *lacks]}

    def held(self, trace_id: str, name: str, part: str) -> np.ndarray | None:
        """Return `tensor` without waiting for the model; None where it takes another forward pass."""
        return self._find(trace_id).records.held(name, part)

    def tensor(self, trace_id: str, name: str, part: str) -> np.ndarray:
        """Return the values of a node or parameter, or a slice of them."""
        return self._find(trace_id).records.tensor(name, part)

    def attribute(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Attribution` for an `AttributeRequest`."""
        request = AttributeRequest.from_dict(body)
        return plain(attribute(self._find(request.trace), request))

    def erase(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Erased` for an `AttributeRequest`."""
        request = AttributeRequest.from_dict(body)
        return plain(erase(self._find(request.trace), request))

    def sweep(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the sweep for a `SweepRequest`."""
        request = SweepRequest.from_dict(body)
        explanation, other = self._find(request.trace), request.other and self._find(request.other)
        return plain(sweep(explanation, request.kind, other or None, request.prediction))

    def decode(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return how a text is decoded, without tracing."""
        log, answer, streams = compute_decoding(self.subject, _trace_request(body))
        return plain({"decode": decode_json(log), "answer": answer, "streams": streams})

    def _keep(self, *explanations: Explanation) -> None:
        """Keep explanations as those used last; the least recently used are dropped."""
        new = {explanation.id: explanation for explanation in explanations}
        with self._lock:
            self._traces = [*(e for e in self._traces if e.id not in new), *new.values()][-MAX_TRACES:]

    def _like(self, request: TraceRequest) -> Explanation | None:
        """Return the kept explanation of a request."""
        return next((e for e in self._traces if e.request == request), None)

    def _find(self, trace_id: str) -> Explanation:
        found = next((e for e in self._traces if e.id == trace_id), None)
        if found is None:
            raise RequestError(404, f"there is no trace {trace_id[:40]!r} (any more)", "trace the text again")
        self._keep(found)
        return found


def _trace_request(body: Any) -> TraceRequest:
    """Return a validated trace request."""
    request = TraceRequest.from_dict(body)
    for text in (request.text, request.target or "", request.other_text or ""):
        if len(text.encode("utf-8")) > MAX_TEXT_BYTES:
            raise RequestError(413, f"a text must have at most {MAX_TEXT_BYTES:,} bytes", "shorten it, or use Python")
    return request

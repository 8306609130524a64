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
from dataclasses import MISSING, field, make_dataclass
from functools import wraps
from inspect import signature
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from msgspec import Meta

from glassformer.errors import GlassformerError, UsageError
from glassformer.explain.attribution import AttributeRequest, attribute, erase
from glassformer.explain.edits.effects import explain_edited
from glassformer.explain.edits.sweeps import SweepKind, sweep
from glassformer.explain.explanation import Explanation, compute_decoding, compute_explanation
from glassformer.explain.learn.learning import explain_learning
from glassformer.explain.page.manifest import (
    MAX_KEPT_TOKENS,
    MAX_TEXT_BYTES,
    MAX_TRACES,
    Manifest,
    RunInfo,
    plain,
    run_info,
)
from glassformer.explain.page.saved_page import saved_page_html, saved_training
from glassformer.explain.request import Id, Request, ShortText, TraceRequest
from glassformer.explain.subject import Subject
from glassformer.explain.watch import (
    MAX_PROBES,
    Action,
    ProbeAnswer,
    ProbeText,
    Training,
    TrainingNow,
    default_texts,
    probe,
)
from glassformer.utils.cpu_threads import let_go

N_WAITING = 32
"""Maximum number of waiting jobs; a page requests all tensors of a screen at once."""

Result = TypeVar("Result")


class RequestError(GlassformerError):
    """A request that is rejected with an HTTP status."""

    def __init__(self, status: int, message: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(message, hint)
        self.status, self.retry_after = status, retry_after


class Worker:
    """A thread that runs jobs in order; the thread that creates it should compute nothing itself."""

    def __init__(self, n_waiting: int = N_WAITING) -> None:
        let_go()  # of the threads that loading a model left behind
        self._queue: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue(n_waiting)
        # A daemon: work that takes long must not keep a process that should stop.
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


def question(method: Callable[..., Result]) -> Callable[[Service, dict[str, Any]], Result]:
    """Let a method take its arguments as one JSON object, each of which is checked by its type."""
    hints, names = get_type_hints(method, include_extras=True), list[Any]()
    for one in [*signature(method).parameters.values()][1:]:
        names.append((one.name, hints[one.name], field(default=MISSING if one.default is one.empty else one.default)))
    name, more = f"{method.__name__.title()}Request", {"__doc__": method.__doc__}
    request: Any = make_dataclass(name, names, bases=(Request,), namespace=more, frozen=True)

    @wraps(method)
    def answer(self: Service, body: dict[str, Any]) -> Result:
        return method(self, **vars(request.from_dict(body)))

    answer.__annotations__ = {"request": request}
    return answer


SAVE_SECONDS = 10.0
"""Time limit for the attributions of a page saved from the page, where other requests wait meanwhile."""


class Service:
    """One run and its latest traces.

    All but `tensor` call the model, or wait for it, and belong in one thread; `tensor` reads in another.

    Args:
        subject: the run; of one that is followed, what gives it, with its training.
        start: what the page shows first: explanations, which are kept, or requests.
    """

    def __init__(self, subject: Subject | Training, start: Sequence[Explanation | Mapping[str, Any]] = ()) -> None:
        self.followed = subject if isinstance(subject, Training) else None
        self._subject = None if isinstance(subject, Training) else subject
        self._training = self.followed or Training(subject.path)
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

    @question
    def control(self, action: Action) -> dict[str, Any]:
        """Ask the training for something, and return nothing."""
        self._training.request(action)
        return {}

    def probes(self) -> dict[str, Any]:
        """Return the texts that the screen Training begins with."""
        return default_texts(self.subject)

    @question
    def probe(self, text: ProbeText, checkpoint: ShortText) -> ProbeAnswer:
        """Return the answer of a snapshot to a text; nothing is kept."""
        return probe(self.subject, text, checkpoint)

    def trace(self, body: dict[str, Any]) -> Manifest:
        """Trace a text and return its manifest; nothing is computed that is kept.

        Where edits are refused, no trace is kept, and none is dropped.
        """
        return self._explain(_trace_request(body)).manifest()

    def _explain(self, request: TraceRequest) -> Explanation:
        """Return the explanation of a request; it is kept, and so are those it is computed from."""
        used = list[Explanation]()

        def explain(subject: Subject, request: TraceRequest, _: str = "") -> Explanation:
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

    @question
    def save(
        self,
        request: dict[str, Any],
        other: dict[str, Any] | None = None,
        view: Annotated[str, Meta(max_length=10_000)] = "",
        training: Annotated[list[str], Meta(max_length=MAX_PROBES)] | None = None,
    ) -> dict[str, Any]:
        """Return the file that `glassformer explain --out` writes, and what it lacks, a sentence each.

        It holds the text of a request with its edits, a second text, and the answers to texts of the training. Of long
        translations it has fewer attributions, as it takes less time. The page begins at the address `view`. Requests
        are sent rather than ids of traces, which may be dropped.
        """
        dropped, shown = list[str](), dict[str, Any](view=view) if view else {}
        first = self._explain(_trace_request(request))
        second = None if other is None else self._explain(_trace_request(other).without_edits())
        if training is not None:
            shown["training"] = saved_training(self.subject, self._training, dropped, training, SAVE_SECONDS)
        second = None if second is None or second.request == (first.base or first).request else second
        page, lacks = saved_page_html(first, other=second, seconds=SAVE_SECONDS, **shown)
        return {"page": page, "dropped": [*dropped, *lacks]}

    def tensor(self, trace_id: str, name: str, part: str) -> np.ndarray:
        """Return the values of a node or parameter, or a slice of them."""
        return self._find(trace_id).tensor(name, part)

    def attribute(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Attribution` for an `AttributeRequest`."""
        request = AttributeRequest.from_dict(body)
        return plain(attribute(self._find(request.trace), request))

    def erase(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the `Erased` for an `AttributeRequest`."""
        request = AttributeRequest.from_dict(body)
        return plain(erase(self._find(request.trace), request))

    @question
    def sweep(
        self, trace: ShortText, kind: SweepKind, other: ShortText | None = None, prediction: Id | None = None
    ) -> dict[str, Any]:
        """Return `Explanation.sweep`; `trace` and `other` are ids of traces."""
        return plain(sweep(self._find(trace), kind, self._find(other) if other else None, prediction))

    def decode(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return how a text is decoded, without tracing."""
        log, answer, streams = compute_decoding(self.subject, _trace_request(body))
        return plain({"decode": log, "answer": answer, "streams": streams})

    def _keep(self, *explanations: Explanation) -> None:
        """Keep explanations as those used last; the least recently used are dropped."""
        new = {explanation.id: explanation for explanation in explanations}
        with self._lock:
            kept = [*(e for e in self._traces if e.id not in new), *new.values()][-MAX_TRACES:]
            while len(kept) > len(new) and sum(max(map(len, e.streams)) for e in kept) > MAX_KEPT_TOKENS:
                kept.pop(0)
            self._traces = kept

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

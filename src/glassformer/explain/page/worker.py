"""Run jobs one after another in a thread, from a queue of limited length.

Recording a forward pass and computing gradients are not safe in two threads at once, which would also share the same
cores. The queue is bounded, so that many requests cost no memory: requests beyond it are refused.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from glassformer.explain.page.responses import RequestError
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
        while True:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is not None:
                waiting[1].cancel()
        self._queue.put(None)
        self._thread.join(wait_seconds)

    def _work(self) -> None:
        while True:
            waiting = self._queue.get()
            if waiting is None:
                return
            _do(*waiting)
            let_go()  # else the threads of one worker slow those of the other
            del waiting  # an answer may not be kept alive until the next question


def _do(job: Callable[[], Any], future: Future[Any]) -> None:
    """Run a job unless its future was cancelled; an exception becomes the result."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)

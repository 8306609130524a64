"""A thread that does one piece of work after another, from a queue that can be full.

A forward pass that is being watched, and a gradient through a replaced embedding, are not for two threads
at once; and two of them would only share the same cores. As the queue's length is fixed, a flood of
questions costs no memory: what does not fit is refused at once.
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
"""Pieces of work that may wait: a page asks for a screenful of tensors at once."""

Result = TypeVar("Result")


class Worker:
    """Does work in order, in a thread of its own; whoever makes it has computed, and computes no more.

    Args:
        n_waiting: how many pieces of work may wait behind the one being done.
    """

    def __init__(self, n_waiting: int = N_WAITING) -> None:
        let_go()  # of the threads that loading a model left behind
        self._queue: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue(n_waiting)
        # A daemon: work that takes long must not keep a process that was asked to stop.
        self._thread = threading.Thread(target=self._work, name="glassformer-worker", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Put a piece of work in the queue; cancelling its future before its turn takes it out again.

        Raises:
            RequestError: the queue is full (503).
        """
        future: Future[Result] = Future()
        try:
            self._queue.put_nowait((job, future))
        except queue.Full:
            raise RequestError(
                503, "too much is being computed already", "try again in a moment", retry_after=2
            ) from None
        return future

    def close(self, wait_seconds: float = 2.0) -> None:
        """Drop what waits, and give what is being done a few seconds to end."""
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
    """Do a piece of work unless whoever asked has gone; whatever it raises is the answer."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)

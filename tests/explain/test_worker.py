from __future__ import annotations

import gc
import threading
import weakref

import pytest
from tests.helpers.forking import until

from glassformer.explain.page.security import RequestError
from glassformer.explain.page.service import Worker


def test_a_full_queue_refuses_and_a_failure_is_an_answer() -> None:
    worker, gate = Worker(n_waiting=2), threading.Event()
    first = worker.submit(gate.wait)
    until(first.running)
    second, third = worker.submit(lambda: 1 / 0), worker.submit(lambda: 7)
    with pytest.raises(RequestError) as caught:
        worker.submit(lambda: None)
    assert caught.value.status == 503
    gate.set()
    with pytest.raises(ZeroDivisionError):
        second.result(5)
    assert third.result(5) == 7
    worker.close()


def test_cancelled_work_is_not_done_and_closing_drops_what_waits() -> None:
    worker, gate, done = Worker(), threading.Event(), []
    first = worker.submit(gate.wait)
    until(first.running)
    cancelled, dropped = worker.submit(lambda: done.append(1)), worker.submit(lambda: done.append(2))
    assert cancelled.cancel()
    threading.Timer(0.1, gate.set).start()
    worker.close()
    assert first.done() and dropped.cancelled() and done == []
    assert not worker._thread.is_alive()


def test_an_answer_is_not_kept() -> None:
    class Large:
        pass

    worker = Worker()
    future = worker.submit(Large)
    kept = weakref.ref(future.result(5))
    del future
    worker.submit(lambda: None).result(5)
    gc.collect()
    assert kept() is None
    worker.close()

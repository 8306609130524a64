"""Let a long computation be cancelled between two of its parts, from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from glassformer.errors import GlassformerError

_event: ContextVar[threading.Event | None] = ContextVar("cancellation", default=None)


class Cancelled(GlassformerError):
    """The computation was cancelled."""


@contextmanager
def cancellable(event: threading.Event) -> Iterator[None]:
    """Within the block, `check_cancelled` raises once the event is set."""
    token = _event.set(event)
    try:
        yield
    finally:
        _event.reset(token)


def check_cancelled() -> None:
    """Raise Cancelled if the computation in this thread was cancelled."""
    event = _event.get()
    if event is not None and event.is_set():
        raise Cancelled("cancelled")

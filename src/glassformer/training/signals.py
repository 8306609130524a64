"""Ctrl-C and SIGTERM as a request: finish the update, save, say how to go on. A second Ctrl-C aborts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Which signal arrived, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM, as shells have it."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catch the two signals within the block (in the main thread; elsewhere none can be caught)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

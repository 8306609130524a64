"""Ctrl-C and SIGTERM as a request: finish the update, save, say how to go on. A second Ctrl-C aborts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from glassformer.errors import Interrupted


class StopRequest:
    """Which signal reached this process, if any; when to heed it, all processes agree on (`loop.py`)."""

    def __init__(self) -> None:
        self.signal: int | None = None


def interrupted(number: int, step: int, out: Path, saved: bool) -> Interrupted:
    """Return the error that ends the run; its exit code is 130 for Ctrl-C, 143 for SIGTERM, as shells have it."""
    what = "everything is saved" if saved else "what came after the last checkpoint is lost"
    told = f"stopped at update {step}; {what} in {out}"
    return Interrupted(told, f"go on with: glassformer train --resume {out}", 128 + number)


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

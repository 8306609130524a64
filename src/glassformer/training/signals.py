"""Ctrl-C and SIGTERM request a stop after the current step, with a checkpoint. A second Ctrl-C aborts."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from glassformer.errors import Interrupted


class StopRequest:
    """The signal that reached this process, if any; all processes decide together when to stop (`loop.py`)."""

    def __init__(self) -> None:
        self.signal: int | None = None


def interruption_error(number: int, step: int, folder: Path, saved: bool) -> Interrupted:
    """Return the error that ends the run; its exit code is 130 after Ctrl-C and 143 after SIGTERM, as in shells."""
    state = "everything is saved" if saved else "the steps since the last checkpoint are lost"
    message = f"stopped at step {step}; {state} in {folder}"
    return Interrupted(message, f"resume with: glassformer train --resume {shlex.quote(str(folder))}", 128 + number)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catch both signals within the block; outside the main thread none can be caught."""
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

"""Ctrl-C, SIGTERM and SIGHUP request a stop after the current step, with a checkpoint. A second Ctrl-C aborts.

Before the first step and after the last they stop the run at once. In each case an error says what is saved and how to
go on; its exit code is 128 and the signal's number, as in shells: 129 (SIGHUP), 130 (Ctrl-C) or 143 (SIGTERM).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from glassformer.errors import Interrupted
from glassformer.runs.folder import RunFolder

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that stop a run. Windows has no SIGHUP; where it is ignored, as under `nohup`, it stays ignored."""


class Stopped(KeyboardInterrupt):
    """Raised by the handler of a signal where the run cannot wait for the end of a step."""


@dataclass
class StopRequest:
    """The signal that reached this process, if any; all processes decide together when to stop (`trainer.py`).

    Attributes:
        signal: the first that came. in_steps: training, so that the loop stops after the step. reported: the run is
            stopping, and later signals are ignored.
    """

    signal: int | None = None
    in_steps: bool = False
    reported: bool = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal and stop, or wait for the end of the step; there only Ctrl-C does not wait twice."""
        again, self.signal = self.signal is not None, self.signal or number
        if not self.reported and (not self.in_steps or (again and number == signal.SIGINT)):
            raise Stopped


def interruption_error(number: int, where: str, hint: str) -> Interrupted:
    """Return the error that ends a run: the signal, where it stopped and what is saved, and how to go on."""
    return Interrupted(f"stopped by {signal.Signals(number).name}{where}", hint, 128 + number)


@contextmanager
def stop_requests(where_stopped: Callable[[], tuple[str, str]]) -> Iterator[StopRequest]:
    """Catch the signals within the block; outside the main thread none can be caught.

    Args:
        where_stopped: returns what the message and the hint say if the block is left by a signal.

    Raises:
        Interrupted: a signal came while it could not wait.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    if before.get(getattr(signal, "SIGHUP", None)) is signal.SIG_IGN:  # pyright: ignore[reportArgumentType]
        del before[signal.SIGHUP]
    try:
        for number in before:
            signal.signal(number, request.handle)
        yield request
    except Stopped:
        request.reported = True
        raise interruption_error(request.signal or signal.SIGINT, *where_stopped()) from None
    finally:
        for number, handler in before.items():
            # A handler that is not Python's own cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def where_it_stopped(folder: RunFolder) -> tuple[str, str]:
    """Return what is saved in a run folder whose run ends now, and how to go on."""
    path, go_on = folder.path, folder.resume_command
    if folder.finished:
        return f" while writing the report; model and scores are saved in {path}", f"finish it with: {go_on}"
    if folder.model.is_dir():
        return f" while scoring the trained model, which is saved in {path}", f"finish it with: {go_on}"
    if folder.resumable:
        return f"; {path} holds the run up to its last checkpoint", f"resume with: {go_on}"
    return f" before the first step; nothing is saved in {path}", "give the same command again"

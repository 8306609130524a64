"""Pauses of a training that `control.json` asks for (`runs/control.py`), and the stop.

The main process reads the file; all processes learn of it in the message that adds up the statistics of a step.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from glassformer.distributed.process_group import ProcessGroup
from glassformer.runs.control import ControlFile
from glassformer.training.signals import STOPPING, StopRequest
from glassformer.utils.process_settings import turns

SECONDS = 0.05
"""Time between two looks at the file while the training is paused."""


def reduce_requests(
    group: ProcessGroup, request: StopRequest, pause: bool, *numbers: float
) -> tuple[bool, signal.Signals | None, list[float]]:
    """Return whether a process asks to pause, the signal that reached any, and sums of numbers; in all the same."""
    signals = (request.signal == number for number in STOPPING)
    n_pause, *rest = group.all_reduce(float(pause), *signals, *numbers)
    received, sums = rest[: len(STOPPING)], rest[len(STOPPING) :]
    stop = next((number for number, n in zip(STOPPING, received, strict=True) if n), None)
    return n_pause > 0, stop, sums


class Pauses:
    """What `control.json` asks of a training.

    Args:
        group: the processes that train together.
        request: gets SIGINT where the file asks to stop, which then is like Ctrl-C.
        path: the file; None: nothing is asked.
    """

    def __init__(self, group: ProcessGroup, request: StopRequest, path: Path | None) -> None:
        self.group, self.request = group, request
        self.file = ControlFile(path) if path is not None and group.is_main else None

    def remove_file(self) -> None:
        """Remove the file: what it asks was meant for an earlier training."""
        if self.file is not None:
            self.file.remove()

    def requested(self, step: int) -> bool:
        """Return whether this process asks to pause after a step; note a stop."""
        if self.file is None:
            return False
        pause = self.file.pauses(step)
        if self.file.control.stop:
            self.request.signal = self.request.signal or signal.SIGINT
        return pause

    def wait(self, step: int) -> signal.Signals | None:
        """Wait after a step until the training continues, for one more step perhaps; return the signal that ends it.

        Processes that read no file wait for the main one in each message.
        """
        with turns.released():
            while True:
                if self.group.is_main:
                    time.sleep(SECONDS)
                pause, stop, _ = reduce_requests(self.group, self.request, self.requested(step))
                if stop is not None or not pause:
                    return stop

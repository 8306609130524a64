"""How busy others are: the cores that neither this process nor any it started has used."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil

MOST_OTHERS = 0.1
"""Cores that others may use beside a measurement that is to be believed."""


class OtherLoad:
    """Within the block: the cores that others used, on average."""

    cores = 0.0

    def __enter__(self) -> OtherLoad:
        self._began, self._at = seconds_of_others(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._at
        self.cores = max(0.0, (seconds_of_others() - self._began) / max(seconds, 1e-9))


def wait_for_quiet(most: float) -> None:
    """Wait until others take less than a tenth of a core, for at most so many seconds."""
    began = time.monotonic()
    while time.monotonic() - began < most:
        with OtherLoad() as load:
            time.sleep(0.5)
        if load.cores <= MOST_OTHERS:
            return
        time.sleep(1)


def seconds_of_others() -> float:
    """Return the processor seconds since the machine started that were neither idle nor ours.

    A process counts those of its children that have ended, so none are lost. Waiting for a disk is idle; time stolen
    by a hypervisor is not of a process of this machine.
    """
    busy = psutil.cpu_times()
    total = sum(getattr(busy, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            own = process.cpu_times()
            total -= own.user + own.system + own.children_user + own.children_system
    return total

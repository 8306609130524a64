"""Threads that leave room: on a processor that other programs use too, fewer than it has.

torch divides every larger operation among its threads, and at its end they wait for one another, spinning so as to
start again at once. Where another program takes a core, one thread is always late, the others burn their time waiting,
and training on two cores keeps a fifth to two fifths of its speed; with one thread fewer it loses little more than the
other program takes.
Bounding the spinning instead (`GOMP_SPINCOUNT`, `OMP_WAIT_POLICY`) costs up to half the speed of an idle machine.
The table of this in `docs/speed.md` was measured beside one and two busy loops.

Only the training loop does so. Sums over many numbers are divided among the threads, so another number of threads
gives other last bits. To get the same ones again, fix the number with `--threads`, `--deterministic` or
torch's own `OMP_NUM_THREADS`; the log holds the number of each step.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress
from typing import NamedTuple

LOOK_SECONDS = 1.0
"""Between two looks at what others use: long beside a scheduler's slice, short for who waits."""
GIVE_UP, TAKE_BACK = 0.5, 0.2
"""Cores that others must use beyond those left to them before a thread is given up, and at most before it is taken
back. The gap keeps the number from going to and fro; both were chosen for two cores, where it matters most."""


class Usage(NamedTuple):
    """Seconds since some moment: of the clock, and of processor time of all programs and of this process."""

    clock: float
    all: float
    own: float


def usage() -> Usage:
    """Return the CPU time used so far on this process's cores. Time stolen by a hypervisor counts as used by others."""
    import psutil

    allowed = cores()
    known = psutil.cpu_times(percpu=True)
    times = [t for i, t in enumerate(known) if i in allowed] or known
    kinds = "user", "nice", "system", "irq", "softirq", "steal"
    own = os.times()
    busy = sum(getattr(t, kind, 0.0) for t in times for kind in kinds)
    return Usage(time.monotonic(), busy, own.user + own.system)


def cores() -> set[int]:
    """Return the logical cores that this process may run on."""
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


class Threads:
    """The number of threads that torch trains with, changed as other programs come and go.

    Args:
        most: threads on an idle machine. n_cores: logical cores, which others share.
    """

    def __init__(self, most: int, n_cores: int) -> None:
        self.most, self.now, self._n_cores, self._last = most, most, n_cores, usage()

    def adjust(self) -> int:
        """Have torch compute with the number of threads that suits now, and return it; cheap enough for every step.

        It is chosen anew each second, from what others used since the last time.
        """
        import torch

        if time.monotonic() - self._last.clock >= LOOK_SECONDS:
            before, self._last = self._last, usage()
            seconds, busy, own = (now - then for now, then in zip(self._last, before, strict=True))
            free = self._n_cores - max(0.0, busy - own) / seconds
            fewer, more = int(free + GIVE_UP), min(self.most, int(free + TAKE_BACK))
            self.now = max(1, fewer if fewer < self.now else max(self.now, more))
            if torch.get_num_threads() != self.now:
                torch.set_num_threads(self.now)
        return self.now


def n_threads() -> int:
    """Return the threads for a library that is not torch: OMP_NUM_THREADS where it is a number, or else the cores."""
    fixed = os.environ.get("OMP_NUM_THREADS", "")
    return int(fixed) if fixed.isdecimal() and int(fixed) else len(cores())


def let_go() -> None:
    """End the threads that OpenMP keeps for the thread that calls; they are started again when it computes.

    It keeps a team for every thread that ever computed. As soon as there are more of them than cores, libgomp no longer
    spins at barriers but sleeps, and a forward pass of many small products takes half as long again: so it was for a
    page's answers, computed by another thread than the one that had loaded the model. Linux only; elsewhere nothing.
    """
    if sys.platform == "linux" and "torch" in sys.modules:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).omp_pause_resource_all(1)  # omp_pause_soft (OpenMP 5.0, section 3.2.44)

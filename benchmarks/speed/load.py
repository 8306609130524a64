"""How busy others are: processor time that neither this process nor any it started has used.

From /proc, so Linux alone; elsewhere nothing is known, and the table says so.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

MOST_OTHERS = 0.1
"""Cores that others may use beside a measurement that is to be believed."""
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says of a process: its parent, and ticks of itself and of children that it has reaped."""

    parent: int
    ticks: int

    @staticmethod
    def parse(line: str) -> Stat:
        """Parse a line of it; the name, in brackets, may contain anything."""
        values = line[line.rindex(")") + 2 :].split()
        return Stat(parent=int(values[1]), ticks=sum(map(int, values[11:15])))


def busy_ticks(proc_stat: str) -> int:
    """Return all ticks that were not idle, from the text of /proc/stat: user, nice, system, and both interrupts.

    Waiting for a disk is idle; time stolen by a hypervisor is not of a process of this machine.
    """
    user, nice, system, _, _, irq, softirq, *_ = map(int, proc_stat.split("\n", 1)[0].split()[1:])
    return user + nice + system + irq + softirq


def own_ticks(stats: dict[int, Stat], root: int) -> int:
    """Return the ticks of a process and its descendants. An ended child is reaped by its parent, so none are lost."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += stats[pid].ticks if pid in stats else 0
        waiting += children.get(pid, [])
    return total


class OtherLoad:
    """Within the block: the cores that others used, on average. `None` where there is no /proc."""

    cores: float | None = None

    def __enter__(self) -> OtherLoad:
        self._began, self._at = _others(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        seconds, now = time.perf_counter() - self._at, _others()
        if self._began is not None and now is not None and seconds > 0:
            self.cores = max(0.0, (now - self._began) / TICKS / seconds)


def other_cores(seconds: float = 1.0) -> float | None:
    """Return the cores that other processes use now, measured for `seconds`."""
    with OtherLoad() as load:
        time.sleep(seconds)
    return load.cores


def _others() -> int | None:
    """Return the ticks since the machine started that were not ours."""
    try:
        total = busy_ticks(Path("/proc/stat").read_text())
    except OSError:
        return None
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = Stat.parse(path.read_text())
        except (OSError, ValueError):
            continue  # it has just ended
    return total - own_ticks(stats, os.getpid())

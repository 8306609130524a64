"""Fewer threads beside other programs, and as many as before when they are gone. No clock and no core decides here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from glassformer.utils import cpu_threads
from glassformer.utils.cpu_threads import Threads, Usage


class Machine:
    """One whose programs use what a test says; a second goes by at every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.threads = Usage(0.0, 0.0, 0.0), 2
        monkeypatch.setattr(cpu_threads, "usage", lambda: self.at)
        monkeypatch.setattr(cpu_threads.time, "monotonic", lambda: self.at.clock)
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.threads)
        monkeypatch.setattr(torch, "set_num_threads", partial(setattr, self, "threads"))

    def passes(self, others: float, own: float = 1.0, seconds: float = 1.0) -> None:
        now = self.at
        used = (others + own) * seconds
        self.at = Usage(now.clock + seconds, now.all + used, now.own + own * seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("cores", "most", "others", "expected"),
    [
        (2, 2, 0.0, 2),
        (2, 2, 0.4, 2),
        (2, 2, 0.7, 1),
        (2, 2, 2.0, 1),  # never none
        (8, 8, 2.6, 5),
        (16, 8, 6.0, 8),  # two threads a core, and enough of them are free
        (16, 8, 9.0, 7),
    ],
)
def test_others_keep_their_cores(machine: Machine, cores: int, most: int, others: float, expected: int) -> None:
    chosen, machine.threads = Threads(most, cores), most
    machine.passes(others, own=2.0)
    assert chosen.adjust() == machine.threads == expected


def test_it_takes_its_threads_back_and_does_not_go_to_and_fro(machine: Machine) -> None:
    chosen, seen = Threads(2, 2), []
    for others, seconds in [*((x, 1.0) for x in (0.0, 0.6, 0.4, 0.3, 0.1, 0.4, 0.3)), (2.0, 0.5), (2.0, 0.5)]:
        machine.passes(others, seconds=seconds)
        seen.append(chosen.adjust())
    assert seen == [2, 1, 1, 1, 2, 2, 2, 2, 1] and machine.threads == 1, "it looks once a second"


def test_this_process_is_not_another() -> None:
    """The real counters: what this process computes is in all and in its own."""
    before = cpu_threads.usage()
    while cpu_threads.usage().own - before.own < 0.1:
        sum(range(10_000))
    after = cpu_threads.usage()
    assert after.all > before.all and after.clock > before.clock


def test_all_cores_are_ours_where_no_system_call_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cpu_threads.cores() == set(range(os.cpu_count() or 1))


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_an_openmp_that_cannot_end_its_threads_keeps_them(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: opened.append(name) or SimpleNamespace())
    cpu_threads.let_go()
    assert opened == ([None] if platform == "linux" else [])


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux lists them")
def test_threads_are_let_go_of_and_start_again() -> None:
    """A server's thread computes undisturbed by those that its main thread left."""
    script = """
import os, time, torch
from glassformer.utils.cpu_threads import let_go
teams = lambda: len(os.listdir("/proc/self/task"))
before = teams()
for _ in range(2):
    torch.ones(1 << 20)
    assert teams() > before, teams()
    let_go()
    until = time.monotonic() + 10
    while teams() > before:
        assert time.monotonic() < until, teams()
        time.sleep(0.01)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr

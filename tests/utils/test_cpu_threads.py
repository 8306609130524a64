"""Fewer threads beside other programs, and as many as before when they are gone. No clock and no core decides here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from glassformer.utils import cpu_threads
from glassformer.utils.cpu_threads import Threads, Usage


class Machine:
    """One whose programs use what a test says; a second goes by at every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = Usage(0.0, 0.0, 0.0)
        monkeypatch.setattr(cpu_threads.time, "monotonic", lambda: self.at.clock)

    def look(self) -> Usage:
        return self.at

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
        (2, 2, 1.0, 1),
        (2, 2, 2.0, 1),  # never none
        (8, 8, 1.0, 7),
        (8, 8, 2.6, 5),
        (16, 8, 6.0, 8),  # two threads a core, and enough of them are free
        (16, 8, 9.0, 7),
    ],
)
def test_others_keep_their_cores(machine: Machine, cores: int, most: int, others: float, expected: int) -> None:
    chosen = Threads(most, cores, machine.look)
    machine.passes(others, own=2.0)
    assert chosen.suitable() == expected


def test_it_takes_its_threads_back_and_does_not_go_to_and_fro(machine: Machine) -> None:
    chosen = Threads(2, 2, machine.look)
    seen = []
    for others in (0.0, 0.6, 0.4, 0.3, 0.1, 0.4, 0.3, 0.6):
        machine.passes(others)
        seen.append(chosen.suitable())
    assert seen == [2, 1, 1, 1, 2, 2, 2, 1]


def test_it_looks_once_a_second(machine: Machine) -> None:
    chosen = Threads(2, 2, machine.look)
    machine.passes(2.0, seconds=0.5)
    assert chosen.suitable() == 2
    machine.passes(2.0, seconds=0.5)
    assert chosen.suitable() == 1


def test_what_others_did_while_nothing_was_computed_here_does_not_count(machine: Machine) -> None:
    chosen = Threads(2, 2, machine.look)
    machine.passes(1.0)
    assert chosen.suitable() == 1
    machine.passes(2.0, own=0.01, seconds=5.0)
    assert chosen.suitable() == 2
    machine.passes(2.0)
    assert chosen.suitable() == 1


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    yield
    torch.set_num_threads(before)


def test_torch_computes_with_that_many(two_threads: None, machine: Machine) -> None:
    """On a machine of two cores whose second is taken."""
    threads = Threads(2, 2, machine.look)
    machine.passes(1.0)
    assert threads.adjust() == torch.get_num_threads() == 1
    machine.passes(0.0)
    assert threads.adjust() == torch.get_num_threads() == 2


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
import os, sys, time, torch
from glassformer.utils.cpu_threads import let_go
def teams():
    return len(os.listdir("/proc/self/task"))
before = teams()
for _ in range(2):
    torch.ones(1 << 20)
    assert teams() > before, teams()
    let_go()
    until = time.monotonic() + 10
    while teams() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert teams() == before, teams()
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr

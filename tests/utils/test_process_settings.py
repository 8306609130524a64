"""Settings of the process: one thread computes under its own, all are put back, others keep their cores."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from glassformer.utils import cpu_threads, device, process_settings
from glassformer.utils.cpu_threads import Threads, Usage
from glassformer.utils.device import Computing, has_onednn, matmul_precision, tuned
from glassformer.utils.process_settings import Settings, Turns, turns

CPU = torch.device("cpu")
MEDIUM = replace(Settings.read(), matmul="medium")
HIGHEST = replace(MEDIUM, matmul="highest")


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run the functions at once; their first error is raised here."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result(60)


def test_nobody_computes_under_the_settings_of_another():
    turns = Turns()

    def work(settings: Settings) -> None:
        for _ in range(200):
            with turns.hold(settings):
                assert torch.get_float32_matmul_precision() == settings.matmul
                turns.give_way()
                with turns.hold(HIGHEST):
                    assert torch.get_float32_matmul_precision() == "highest"
                assert torch.get_float32_matmul_precision() == settings.matmul

    in_threads(*[lambda s=s: work(s) for s in (MEDIUM, HIGHEST) * 4])


def test_the_others_wait_in_line_and_get_their_turn_where_work_gives_way():
    turns, order = Turns(), list[str]()

    def other() -> None:
        with turns.hold(HIGHEST):
            order.append("other")

    second = threading.Thread(target=other)
    with turns.hold(MEDIUM):
        second.start()
        while not turns._next.locked():
            pass
        order.append("gives way")
        turns.give_way()
        assert torch.get_float32_matmul_precision() == "medium"
        order.append("continues")
        with turns.released():
            in_threads(other)
        assert torch.get_float32_matmul_precision() == "medium"
    second.join()
    assert order == ["gives way", "other", "continues", "other"]


def test_an_error_or_an_interruption_leaves_nothing_held():
    turns, interrupted = Turns(), mock.Mock(acquire=mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(ZeroDivisionError), turns.hold(MEDIUM), turns.hold(HIGHEST):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), turns.hold(MEDIUM), turns.released():
        turns._turn = interrupted
    assert turns.current == Settings.read()


def test_a_thread_knows_its_own_precision_and_the_number_of_threads_is_the_callers_again():
    seen, before = list[str](), torch.get_num_threads()
    with tuned(CPU):
        in_threads(lambda: seen.append(turns.current.matmul))
        assert turns.current.matmul == "highest"
        with matmul_precision("medium"):
            assert turns.current.matmul == torch.get_float32_matmul_precision() == "medium"
        torch.set_num_threads(before + 1)  # as where other programs come or go
    assert seen == [turns.current.matmul] and torch.get_num_threads() == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not():
    held, done = threading.Event(), threading.Event()

    def other() -> None:
        with process_settings.turns.hold(HIGHEST):
            held.set()
            done.wait(60)

    def child() -> None:
        with process_settings.turns.hold(MEDIUM):
            assert torch.get_float32_matmul_precision() == "medium"

    (thread := threading.Thread(target=other)).start()
    held.wait(60)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    done.set()
    thread.join()
    assert process.exitcode == 0


# Settings of the process: set while something computes, and put back


ONEDNN = Computing(products="onednn")
FAST = "medium" if has_onednn() else "highest"
"""Some processors round to bf16 under "medium", and to some it means nothing."""


def settings() -> tuple[str, bool, bool, bool]:
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
    )


@pytest.fixture(params=[("highest", False, False), ("high", True, True), ("medium", True, False)], ids=str)
def callers(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool, bool, bool]]:
    """What a caller has set."""
    before, (precision, strict, warn_only) = Settings.read(), request.param
    replace(before, matmul=precision, deterministic=strict, warn_only=warn_only).apply()
    yield settings()
    before.apply()


def test_what_the_caller_set_is_put_back(callers):
    with tuned(CPU):
        assert settings()[:2] == ("highest", False)
    with tuned(CPU, ONEDNN):
        assert settings()[:2] == (FAST, False)
        with tuned(CPU, deterministic=True):
            assert settings()[:2] == ("highest", True)
        assert settings()[:2] == (FAST, False)
    assert settings() == callers
    with pytest.raises(ZeroDivisionError), tuned(CPU, deterministic=True):
        raise ZeroDivisionError
    assert settings() == callers


def test_nothing_rounds_where_fp32_is_asked_for(monkeypatch):
    """A GPU rounds to TF32 under any other setting, some processors to bf16: predictions would not be the explained."""
    before = settings()
    with tuned(CPU, ONEDNN), matmul_precision("highest"):
        assert torch.get_float32_matmul_precision() == "highest"
    with tuned(torch.device("cuda"), ONEDNN):  # its switches are there without a GPU
        assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(device, "has_onednn", lambda: False)
    with tuned(CPU, ONEDNN):
        assert torch.get_float32_matmul_precision() == "highest"
    assert settings() == before


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_memory_of_a_system_without_glibc_is_left_alone(platform, monkeypatch):
    opened: list[object] = []

    def no_library(name: object) -> None:
        opened.append(name)
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with tuned(CPU):
        assert torch.ones(3).sum() == 3
    assert opened == (["libc.so.6"] if platform == "linux" else [])


# Fewer threads beside other programs, and as many as before when they are gone. No clock and no core decides here


class Machine:
    """One whose programs use what a test says; a second goes by at every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.threads = Usage(0.0, 0.0, 0.0), 2
        monkeypatch.setattr(cpu_threads, "usage", lambda: self.at)
        monkeypatch.setattr(cpu_threads, "time", SimpleNamespace(monotonic=lambda: self.at.clock))
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
def test_others_keep_their_cores(machine, cores, most, others, expected):
    chosen, machine.threads = Threads(most, cores), most
    machine.passes(others, own=2.0)
    assert chosen.adjust() == machine.threads == expected


def test_it_takes_its_threads_back_and_does_not_go_to_and_fro(machine):
    chosen, seen = Threads(2, 2), []
    for others, seconds in [*((x, 1.0) for x in (0.0, 0.6, 0.4, 0.3, 0.1, 0.4, 0.3)), (2.0, 0.5), (2.0, 0.5)]:
        machine.passes(others, seconds=seconds)
        seen.append(chosen.adjust())
    assert seen == [2, 1, 1, 1, 2, 2, 2, 2, 1] and machine.threads == 1, "it looks once a second"


def test_this_process_is_not_another():
    """The real counters: what this process computes is in all and in its own."""
    before = cpu_threads.usage()
    while cpu_threads.usage().own - before.own < 0.1:
        sum(range(10_000))
    after = cpu_threads.usage()
    assert after.all > before.all and after.clock > before.clock


def test_all_cores_are_ours_where_no_system_call_tells(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cpu_threads.cores() == set(range(os.cpu_count() or 1))


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_an_openmp_that_cannot_end_its_threads_keeps_them(platform, monkeypatch):
    opened: list[object] = []
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: opened.append(name) or SimpleNamespace())
    cpu_threads.let_go()
    assert opened == ([None] if platform == "linux" else [])


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux lists them")
def test_threads_are_let_go_of_and_start_again():
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

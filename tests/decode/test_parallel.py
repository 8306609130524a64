"""A large job divided among processes gives what one gives; whatever goes wrong in one of them is reported."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest
import torch
from tests.helpers.for_each import for_each

from glassformer.decode.jobs import map_forked, n_workers_for
from glassformer.errors import DivergedError, ResourceError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there processes are forked")


def test_every_item_in_its_place():
    together = multiprocessing.get_context("fork").Barrier(3)

    def work(i: int) -> tuple[int, int]:
        return i, os.getpid()

    def work_at_once(i: int) -> tuple[int, int]:
        if i < 3:  # the first items wait for each other, so that no process takes two of them
            together.wait(timeout=120)
        return work(i)

    found = map_forked(work_at_once, range(7), 3)
    assert [i for i, _ in found] == list(range(7))
    pids = {pid for _, pid in found}
    assert len(pids) == 3 and os.getpid() not in pids
    assert map_forked(work, range(3), 1) == [(i, os.getpid()) for i in range(3)]


def test_threads_are_as_before():
    before = torch.get_num_threads()
    assert map_forked(lambda _: torch.get_num_threads(), [0, 1], 2) == [1, 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("act", "error", "message", "more"),
    [
        (Mock(side_effect=DivergedError("no numbers", "a hint")), DivergedError, "no numbers", "a hint"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), ResourceError, "worker died", ""),
        (lambda: [].pop(), IndexError, "pop from empty list", "lambda: [].pop()"),  # the place in the worker
    ],
    ids=["ours", "killed", "bug"],
)
def test_what_goes_wrong_in_a_process_is_raised(act, error, message, more):
    with pytest.raises(error, match=message) as caught:
        map_forked(lambda i: act() if i else i, [0, 1], 2)
    assert more in f"{getattr(caught.value, 'hint', '')}{caught.value.__cause__}"
    assert not multiprocessing.active_children()


def test_none_is_left_behind_after_ctrl_c():
    def work(i: int) -> None:
        if i:
            os.kill(os.getppid(), signal.SIGINT)
        signal.pause()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        map_forked(work, [0, 1], 2)
    assert not multiprocessing.active_children() and time.monotonic() - began < 20


PARENT = """
import os, time
from glassformer.decode.jobs import map_forked

def work(i):
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: two processes write
    time.sleep(600)

map_forked(work, [0, 1], 2)
"""


def test_workers_end_with_a_parent_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        assert parent.stdout.read() == ""  # once no process is left that could write
    assert len(set(workers)) == 2


@for_each(
    ("n", "device", "n_active", "platform", "expected"),
    [
        (200, "cpu", 1, "linux", 2),
        (199, "cpu", 1, "linux", 1),
        (0, "cpu", 1, "linux", 1),
        (200, "meta", 1, "linux", 1),
        (200, "cpu", 2, "linux", 1),
        (200, "cpu", 1, "darwin", 1),
    ],
)
def test_small_jobs_other_systems_devices_and_threads_take_one(n, device, n_active, platform, expected, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threading, "active_count", lambda: n_active)
    monkeypatch.setattr(sys, "platform", platform)
    assert n_workers_for(n, torch.device(device), 100) == expected

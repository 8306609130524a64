"""A large job divided among processes gives what one gives; whatever goes wrong in one of them is told."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import pytest
import torch

from glassformer.decode import parallel
from glassformer.decode.parallel import map_forked, n_workers_for
from glassformer.errors import DivergedError, ResourceError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(parallel.sys, "platform", "linux")
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_every_item_in_its_place() -> None:
    parent = os.getpid()
    found = map_forked(lambda i: [i, os.getpid()], range(7), 3)
    assert [i for i, _ in found] == list(range(7))
    pids = [pid for _, pid in found]
    assert len(set(pids)) == 3 and pids[0::3] == [parent] * 3 and len({*pids[1::3]}) == 1


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    assert map_forked(lambda _: torch.get_num_threads(), [0, 1], 2) == [1, 1]
    assert torch.get_num_threads() == before


def test_an_error_of_ours_is_raised_as_it_is() -> None:
    def work(i: int) -> int:
        if i:
            raise DivergedError("no numbers", "an earlier checkpoint")
        return i

    with pytest.raises(DivergedError, match="no numbers") as caught:
        map_forked(work, [0, 1], 2)
    assert caught.value.hint == "an earlier checkpoint"


@pytest.mark.parametrize("way", ["killed", "bug"])
def test_a_lost_process_is_told(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    def work(i: int) -> int:
        if i and way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return 1 // (1 - i)

    with pytest.raises(ResourceError, match="worker died"):
        map_forked(work, [0, 1], 2)
    assert ("ZeroDivisionError" in capfd.readouterr().err) == (way == "bug")


def test_none_is_left_behind_when_this_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    forked, fork = list[int](), os.fork
    monkeypatch.setattr(parallel.os, "fork", lambda: forked.append(fork()) or forked[-1])

    def work(i: int) -> Any:
        if i:
            signal.pause()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_forked(work, [0, 1], 2)
    (child,) = forked
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.usefixtures("two_threads")
def test_small_jobs_other_systems_devices_and_threads_take_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert n_workers_for(200, cpu, 100) == 2
    assert n_workers_for(199, cpu, 100) == 1
    assert n_workers_for(0, cpu, 100) == 1
    assert n_workers_for(200, torch.device("meta"), 100) == 1
    with monkeypatch.context() as other:
        other.setattr(threading, "active_count", lambda: 2)
        assert n_workers_for(200, cpu, 100) == 1
    monkeypatch.setattr(sys, "platform", "darwin")
    assert n_workers_for(200, cpu, 100) == 1

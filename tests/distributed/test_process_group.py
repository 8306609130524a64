"""One run in several processes: the same batches, the same curve, the same scores as in one."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.distributed import together as work
from tests.distributed.together import environment_of, together, train
from torch.distributed import TCPStore

from glassformer import distributed
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup, init_distributed
from glassformer.errors import ResourceError, UsageError
from glassformer.utils import console

ROWS = st.lists(st.integers(1, 20), min_size=1, max_size=5)


@given(ROWS, st.integers(1, 9))
def test_every_row_of_an_update_counts_once_whatever_the_number_of_processes(sizes: list[int], size: int) -> None:
    ends = np.cumsum([0, *sizes])
    entries = [np.arange(start, stop) for start, stop in itertools.pairwise(ends)]
    shares = [ProcessGroup(rank, size).split_batches(entries) for rank in range(size)]
    assert len({len(share) for share in shares}) == 1, "all have equally many forward passes"
    counted = np.concatenate([rows for share in shares for rows, counts in share if counts])
    assert sorted(counted) == list(range(ends[-1]))
    assert all(len(rows) for share in shares for rows, _ in share), "none is empty"
    if size == 1:
        assert all(a is not None and np.array_equal(a, b) for (a, _), b in zip(shares[0], entries, strict=True))


def test_all_but_the_first_say_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    logging.getLogger("glassformer.training").info("one")
    console.write("two")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("RANK", "0")
    console.write("three")
    assert capsys.readouterr().out == "three\n"


def test_processes_that_cannot_meet_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UsageError, match=r"the 2 processes of this run cannot meet: .*MASTER_ADDR"):
        init_distributed("cpu").__enter__()


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> list[TCPStore]:
    """The store of the first of two processes; here is the second."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in environment_of(1, 2, store.port).items():
        monkeypatch.setenv(name, value)
    return [store]


def once_met(first: list[TCPStore], act: Callable[[], object]) -> None:
    """Do something in a thread while the second process waits for the first one's own address."""

    def wait() -> None:
        while first[0].num_keys() < 2:
            time.sleep(0.01)
        time.sleep(0.1)
        act()

    Thread(target=wait, daemon=True).start()


def test_a_process_that_ends_while_the_others_meet_it_is_lost_and_no_wrong_flag(first: list[TCPStore]) -> None:
    once_met(first, first.clear)
    lost = "one of the 2 processes of this run ended while they met: "
    with pytest.raises(ResourceError, match=lost) as raised:
        init_distributed("cpu").__enter__()
    assert raised.value.exit_code == 6 and raised.value.hint == "give the same command again"


def test_a_signal_ends_the_wait_for_a_process_that_does_not_come(
    first: list[TCPStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=30))
    before, began = signal.signal(signal.SIGTERM, stop), time.monotonic()
    once_met(first, lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with pytest.raises(KeyboardInterrupt):
            init_distributed("cpu").__enter__()
        assert time.monotonic() - began < 25
    finally:
        signal.signal(signal.SIGTERM, before)
        first.clear()


def test_one_that_dies_before_all_chose_a_device_is_lost_and_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "_rendezvous", lambda n: ProcessGroup(0, n))
    monkeypatch.setattr(distributed.dist, "all_reduce", closed)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(console, "ignore_rank", lambda: None)
    with pytest.raises(ResourceError, match=r"was lost.*before the first step"), init_distributed("cpu"):
        pass


def near(found: dict, expected: dict) -> None:
    """Two curves that differ by rounding alone."""
    for name in ("loss", "norm"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5), name
    assert found["position"] == expected["position"] and found["clipped"] == expected["clipped"]
    for ratios, others in zip(found["moved"], expected["moved"], strict=True):
        assert ratios == pytest.approx(others, rel=1e-2)  # four digits are logged, of Adam's sign where a gradient is 0
    for scores, others in zip(found["valid"], expected["valid"], strict=True):
        assert scores == pytest.approx(others, rel=1e-5)


def test_a_signal_during_validation_stops_all_processes_after_this_update() -> None:
    """What reached one process too late to be agreed on must not end it alone."""
    first, second = together(2, work.stop_during_validation)
    assert first == second and [stop for _, stop in first[:-1]] == [None] * (len(first) - 1)
    assert first[-1] == [True, signal.SIGTERM]


def test_what_one_process_cannot_do_none_does() -> None:
    message, other = together(2, work.differ)
    assert message == other
    different = "the 2 processes of this run differ in: data"
    hint = "start the same command with the same files and versions everywhere"
    assert message == [
        ["UsageError", different, hint, 2],
        ["DataError", "process 1: no such file: ä", "look", 3],
        ["Interrupted", "process 1: stopped", "resume it", 143],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_the_curve_in_bf16_is_that_of_one_process_within_its_rounding(task: str) -> None:
    settings = {"precision": "bf16", "epochs": 3, "lr": 3e-4}  # a text known by heart has a loss of rounding alone
    alone, (found, other) = train(SINGLE_PROCESS, task, 20, 60, settings), together(2, train, task, 20, 60, settings)
    assert found == other
    assert found["loss"] == pytest.approx(alone["loss"], rel=5e-3)
    assert found["norm"] == pytest.approx(alone["norm"], rel=2e-2)


@pytest.mark.slow
def test_two_processes_with_a_batch_each_are_one_that_accumulates_two_to_the_byte() -> None:
    settings = {"accumulate": 2, "epochs": 2}
    alone = train(SINGLE_PROCESS, "translate", 12, 60, settings)
    for found in together(2, train, "translate", 12, 60, settings):
        assert found["kept"] == alone["kept"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "translate", "pretrain", "lm"])
def test_every_example_is_scored_once_by_any_number_of_processes(task: str) -> None:
    sizes = [1] if task == "lm" else [1, 2, 3, 7, 17]
    alone = work.validate(SINGLE_PROCESS, task, sizes)
    for size in (2, 3, 4):
        found = together(size, work.validate, task, sizes)
        for i, expected in enumerate(alone):
            assert sorted(index for process in found for index in process[i]["seen"]) == sorted(expected["seen"])
            for process in found:
                assert process[i]["scores"] == pytest.approx(expected["scores"], rel=1e-6)


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_all_and_one_clock_is_believed() -> None:
    first, second = together(2, work.diverge)
    assert first[:2] == second[:2] and first[1], "all stop at the same update, and nothing was updated"
    assert all(str(row) in first[0] for row in first[2] + second[2]), "rows of all are named"
    assert first[0].startswith("loss nan")
    paces = together(2, work.pace)
    assert paces[0] == paces[1]


SLOW: list[tuple[str, int, dict[str, Any]]] = [
    ("classify", 60, {}),
    ("translate", 60, {"accumulate": 3}),
    ("lm", 60, {"accumulate": 3}),
    ("classify", 40, {"adversarial": 0.1}),
    ("classify", 40, {"optimizer": "muon"}),
    ("translate", 40, {"label_smoothing": 0.1}),
    ("classify", 22, {"batch_size": 7}),  # three batches of 7 and one text
    ("lm", 22, {"batch_size": 9}),  # the windows of a text end in a short one
    ("pretrain", 40, {"accumulate": 2}),  # each process hides other tokens
]


@pytest.mark.parametrize(
    ("task", "n", "settings"),
    [("classify", 30, {"accumulate": 3, "epochs": 1}), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
    ids=str,
)
def test_any_number_of_processes_trains_the_same_curve(task: str, n: int, settings: dict[str, Any]) -> None:
    sizes, settings = (2,) if "epochs" in settings else (2, 4), {"epochs": 3} | settings
    alone = train(SINGLE_PROCESS, task, 30, n, settings)
    for size in sizes:
        found = together(size, train, task, 30, n, settings)
        assert all(other == found[0] for other in found), "replicas are equal to the byte"
        assert len(found[0]["loss"]) == len(alone["loss"]) > 1
        if task != "pretrain":
            near(found[0], alone)


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "fact"), [(work.other_versions, "versions"), (work.mixed_devices, "device")])
def test_processes_that_differ_are_told_in_what(wrong: Callable, fact: str) -> None:
    assert [found[1] for found in together(2, wrong)] == [f"the 2 processes of this run differ in: {fact}"] * 2


COMPILED = """
import json, sys, torch
from tests.distributed.together import train
from glassformer.distributed import SINGLE_PROCESS
compile_ = torch.nn.Module.compile
torch.nn.Module.compile = lambda layer: compile_(layer, backend="aot_eager", fullgraph=True)
pairs = []
for task in ("classify", "translate", "lm"):
    torch._dynamo.reset()  # a training has a process of its own, and so its own number of shapes that are traced
    pairs.append([train(SINGLE_PROCESS, task, 4, 40, {"compile": way}) for way in (True, False)])
json.dump(pairs, sys.stdout)
"""
"""Layers are traced whole, and here not turned into machine code, which takes a minute."""


@pytest.mark.slow
def test_compiled_layers_give_the_same_curve() -> None:
    """In a process of its own, for here the shapes of all arguments are checked, which cannot be traced."""
    root = Path(__file__).parents[2]
    paths = {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    message = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=root, env=os.environ | paths
    )
    assert message.returncode == 0, message.stderr
    for compiled, plain in json.loads(message.stdout):
        near(compiled, plain)

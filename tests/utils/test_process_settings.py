"""Settings of the process: one thread at a time computes under its own, the others wait for their turn."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest import mock

import pytest
import torch

from glassformer.utils import process_settings
from glassformer.utils.device import matmul_precision, tuned
from glassformer.utils.process_settings import Settings, Turns, turns

CPU = torch.device("cpu")
MEDIUM = replace(Settings.read(), matmul="medium")
HIGHEST = replace(MEDIUM, matmul="highest")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = Settings.read()
    yield
    assert Settings.read() == before


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run the functions at once; their first error is raised here."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result(60)


def test_nobody_computes_under_the_settings_of_another() -> None:
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


def test_the_others_wait_in_line_and_get_their_turn_where_work_gives_way() -> None:
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


def test_an_error_or_an_interruption_leaves_nothing_held() -> None:
    turns, interrupted = Turns(), mock.Mock(acquire=mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(ZeroDivisionError), turns.hold(MEDIUM), turns.hold(HIGHEST):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), turns.hold(MEDIUM), turns.released():
        turns._turn = interrupted
    assert turns.current == Settings.read()


def test_a_thread_knows_its_own_precision_and_the_number_of_threads_is_the_callers_again() -> None:
    seen, before = list[str](), torch.get_num_threads()
    with tuned(CPU):
        in_threads(lambda: seen.append(turns.current.matmul))
        assert turns.current.matmul == "highest"
        with matmul_precision("medium"):
            assert turns.current.matmul == torch.get_float32_matmul_precision() == "medium"
        torch.set_num_threads(before + 1)  # as where other programs come or go
    assert seen == [turns.current.matmul] and torch.get_num_threads() == before


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not() -> None:
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

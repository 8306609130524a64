"""The batches of a large job divided among processes, a core each.

Decoding is many small steps, each too small for threads to share: two processes of one thread write more than one
process of two. They are forked, so that they have the model without loading or copying it, and answer in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import torch

from glassformer import errors
from glassformer.errors import GlassformerError, ResourceError
from glassformer.utils.cpu_threads import make_room

Item = TypeVar("Item")


def n_workers_for(n_rows: int, device: torch.device, fewest_rows: int) -> int:
    """How many processes a job of so many rows is worth; 1 wherever forking is not safe or not possible.

    It is safe on Linux, from a process without other (Python) threads that could hold a lock.
    """
    able = sys.platform == "linux" and device.type == "cpu" and threading.active_count() == 1
    return max(1, min(make_room(), n_rows // fewest_rows)) if able else 1


def map_forked(work: Callable[[Item], Any], items: Sequence[Item], n_processes: int) -> list[Any]:
    """`work` of every item, in their order; each process does every n-th, this one the first, with a thread each.

    Args:
        work: what it returns must survive JSON.

    Raises:
        GlassformerError: what `work` raised, wherever it did. ResourceError: a process was lost.
    """
    n_processes = min(n_processes, len(items))
    if n_processes <= 1:
        return [work(item) for item in items]
    found: list[Any] = [None] * len(items)
    with one_thread():
        children = [_fork(work, items[k::n_processes]) for k in range(1, n_processes)]
        try:
            found[0::n_processes] = [work(item) for item in items[0::n_processes]]
            for k, (_, pipe) in enumerate(children, start=1):
                found[k::n_processes] = _read(pipe)
        finally:
            for pid, pipe in children:
                with suppress(OSError):
                    os.close(pipe)
                os.kill(pid, signal.SIGKILL)  # it has answered, or nobody waits for its answer any more
                os.waitpid(pid, 0)
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """torch with one thread within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fork(work: Callable[[Item], Any], items: Sequence[Item]) -> tuple[int, int]:
    """A process that does its items, and the pipe it answers through."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of torch's threads, which wait for work and hold no lock; the child starts none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    _be_child(work, items, writing)


def _be_child(work: Callable[[Item], Any], items: Sequence[Item], pipe: int) -> NoReturn:
    """Work, answer, and end without anything that a process does at its end: its files are its parent's."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches both; the parent says so
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ["OMP_NUM_THREADS"] = "1"  # for `make_room`
        try:
            told: dict[str, Any] = {"found": [work(item) for item in items]}
        except GlassformerError as error:
            told = {"kind": type(error).__name__, "told": [error.message, error.hint]}
        except Exception:
            traceback.print_exc()  # a bug, whose place is known only here
            raise
        with open(pipe, "w", encoding="utf-8") as answer:
            json.dump(told, answer)
    finally:
        os._exit(0)


def _read(pipe: int) -> list[Any]:
    """What a child found."""
    with open(pipe, encoding="utf-8", closefd=False) as answer:
        text = answer.read()
    if not text:
        told = "a process that was decoding beside this one was lost"
        raise ResourceError(told, "it may have been out of memory; OMP_NUM_THREADS=1 decodes in a single process")
    told = json.loads(text)
    if "found" not in told:
        raise getattr(errors, told["kind"])(*told["told"])
    return told["found"]

"""Divide the batches of a large decoding job among forked workers, one per core.

Decoding is many small steps, each too small for several threads: two workers with one thread each are faster than one
with two. Workers are forked, so that they share the model without loading or copying it, and return JSON.
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

Item = TypeVar("Item")


def n_workers_for(n_rows: int, device: torch.device, min_rows: int) -> int:
    """Return how many workers to use for `n_rows` rows, each with at least `min_rows`; 1 where forking is unsafe.

    It is safe on Linux, from a process without other (Python) threads that could hold a lock.
    """
    safe = sys.platform == "linux" and device.type == "cpu" and threading.active_count() == 1
    return max(1, min(torch.get_num_threads(), n_rows // min_rows)) if safe else 1


def map_forked(function: Callable[[Item], Any], items: Sequence[Item], n_workers: int) -> list[Any]:
    """Return `function` of every item, in order, computed by `n_workers` processes with one thread each.

    Each worker takes every n-th item; this process is the first worker.

    Args:
        function: its result must be JSON-serialisable.
        items: its arguments.
        n_workers: number of processes, this one included.

    Raises:
        GlassformerError: `function` raised it, in any worker.
        ResourceError: a worker died.
    """
    n_workers = min(n_workers, len(items))
    if n_workers <= 1:
        return [function(item) for item in items]
    results: list[Any] = [None] * len(items)
    with one_thread():
        children = [_fork(function, items[k::n_workers]) for k in range(1, n_workers)]
        try:
            results[0::n_workers] = [function(item) for item in items[0::n_workers]]
            for k, (_, pipe) in enumerate(children, start=1):
                results[k::n_workers] = _read(pipe)
        finally:
            for pid, pipe in children:
                with suppress(OSError):
                    os.close(pipe)
                # It has returned its results, or nobody waits for them any more.
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return results


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fork(function: Callable[[Item], Any], items: Sequence[Item]) -> tuple[int, int]:
    """Start a worker on its items; return its process id and the pipe to read its results from."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of torch's threads, which wait for work and hold no lock; the child starts none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    _run_worker(function, items, write_end)


def _run_worker(function: Callable[[Item], Any], items: Sequence[Item], pipe: int) -> NoReturn:
    """Compute, write the results, and exit without any clean-up: the open files belong to the parent."""
    try:
        # Ctrl-C reaches both processes; the parent reports it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under `nohup`
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            reply: dict[str, Any] = {"results": [function(item) for item in items]}
        except GlassformerError as error:
            reply = {"error": type(error).__name__, "arguments": [error.message, error.hint]}
        except Exception:
            # A bug: only this process knows where.
            traceback.print_exc()
            raise
        with open(pipe, "w", encoding="utf-8") as file:
            json.dump(reply, file)
    finally:
        os._exit(0)


def _read(pipe: int) -> list[Any]:
    with open(pipe, encoding="utf-8", closefd=False) as file:
        text = file.read()
    if not text:
        hint = "it may have run out of memory: OMP_NUM_THREADS=1 decodes in a single process"
        raise ResourceError("a decoding worker died", hint)
    reply = json.loads(text)
    if "error" in reply:
        raise getattr(errors, reply["error"])(*reply["arguments"])
    return reply["results"]

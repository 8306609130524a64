"""Divide the batches of a large decoding job among forked workers, one per core.

Decoding is many small steps, each too small for several threads: two workers with one thread each are faster than one
with two. Workers are forked, so that they share the model without loading or copying it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from glassformer.errors import ResourceError
from glassformer.utils.console import announced

Item = TypeVar("Item")
Result = TypeVar("Result")
_function: Callable[[Any], Any] = print
"""In a worker: what it computes."""


def n_workers_for(n_rows: int, device: torch.device, min_rows: int) -> int:
    """Return how many workers to use for `n_rows` rows, each with at least `min_rows`; 1 where forking is unsafe.

    It is safe on Linux, from a process without other (Python) threads that could hold a lock.
    """
    safe = sys.platform == "linux" and device.type == "cpu" and threading.active_count() == 1
    return max(1, min(torch.get_num_threads(), n_rows // min_rows)) if safe else 1


def map_forked(function: Callable[[Item], Result], items: Sequence[Item], n_workers: int) -> list[Result]:
    """Return `function` of every batch, in order, computed by `n_workers` processes with one thread each.

    A long job logs how far it is.

    Raises:
        ResourceError: a worker died.
    """
    n_workers = min(n_workers, len(items))
    if n_workers <= 1:
        return list(announced(map(function, items), len(items), "decoded"))
    before = set(multiprocessing.active_children())
    # What is passed through `initargs` is forked, not pickled: a closure over the model will do.
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(n_workers, fork, initializer=_begin, initargs=(function,)) as pool:
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of torch's threads, which wait for work and hold no lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                results = pool.map(_compute, items)
            return list(announced(results, len(items), "decoded"))
        except BaseException as error:  # Ctrl-C among them: nobody waits for the others' results any more
            for worker in set(multiprocessing.active_children()) - before:
                worker.kill()
            if not isinstance(error, BrokenProcessPool):
                raise
            hint = "it may have run out of memory: OMP_NUM_THREADS=1 decodes in a single process"
            raise ResourceError("a decoding worker died", hint) from error


def _begin(function: Callable[[Any], Any]) -> None:
    """Prepare a worker."""
    global _function
    _function = function
    # OpenMP's other threads were not forked: an operation divided among them would wait for them forever.
    torch.set_num_threads(1)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the parent, however that ends
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored as under `nohup`
            signal.signal(number, signal.SIG_DFL)  # Ctrl-C reaches both processes; the parent reports it


def _compute(item: Any) -> Any:
    return _function(item)

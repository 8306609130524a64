"""Encoding in several processes: who does which block, and how all stop when one fails, or the first of them dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path

from glassformer.data.encode import (
    BlockEncoder,
    Encoding,
    clear,
    finish_folder,
    prepare_folder,
    share_to_hold_out,
)
from glassformer.data.shards import INDEX, TOKENIZER, Shards
from glassformer.data.sources import Source, find_sources
from glassformer.errors import DataError, Interrupted, ResourceError
from glassformer.files import remove_leftovers
from glassformer.text.tokenizer import Tokenizer

Told = Callable[[int, int, Counter[str]], None]
"""Told of each block that is done: how many are, of how many, and what was counted in it."""

_own: BlockEncoder | None = None
"""What encodes in this process, where it is one of several."""


def encode(
    named: Sequence[str | Path], out: Path, encoding: Encoding, *, tokenizer: Tokenizer | None = None,
    jobs: int = 1, told: Told = lambda done, n, counts: None,
) -> Shards:  # fmt: skip
    """Encode files and folders of text into a folder of shards, or go on where that was left.

    Args:
        named: the input. out: a new or empty folder, or the one to go on with.
        encoding: how; a `valid_fraction` of None means the usual share.
        tokenizer: the one to use; None trains one on a sample. jobs: processes.

    Raises:
        UsageError, DataError: see `find_sources`, `prepare_folder` and `units_of`.
        ResourceError: the disk is full, or a process was lost; what is sealed stands.
    """
    sources = find_sources(named)
    if not any(source.size for source in sources):
        raise DataError(f"{named[0]}: there is no text, every file is empty")
    if encoding.valid_fraction is None:
        encoding = replace(encoding, valid_fraction=share_to_hold_out(sources))
    encoding = replace(encoding, tokenizer=tokenizer.sha256 if tokenizer else "")
    remove_leftovers(out)
    tokenizer = prepare_folder(out, sources, encoding, tokenizer)
    if (out / INDEX).is_file():
        clear(out)
        return Shards.read(out)
    encoder = BlockEncoder(out, sources, encoding, tokenizer)
    todo = [number for number in range(len(encoder.blocks)) if not encoder.is_sealed(number)]
    sealed = (
        map(encoder.seal, todo) if jobs == 1 else _in_processes(min(jobs, len(todo)), encoder, sources, todo)
    )
    for done, counts in enumerate(sealed, start=1 + len(encoder.blocks) - len(todo)):
        told(done, len(encoder.blocks), counts)
    return finish_folder(encoder, sources)


def _in_processes(
    jobs: int, encoder: BlockEncoder, sources: list[Source], todo: list[int]
) -> Iterator[Counter[str]]:
    """Seal blocks in processes of their own; the counts of each as it is done."""
    if not todo:
        return
    context = multiprocessing.get_context("spawn")  # a fork would inherit the tokenizer's threads half alive
    stop = context.Event()
    with ProcessPoolExecutor(jobs, context, _begin, (encoder.out, sources, encoder.encoding, stop)) as pool:
        try:
            for future in as_completed([pool.submit(_seal, number) for number in todo]):
                yield future.result()
        except BrokenProcessPool as error:
            told = "a process that encoded was lost: memory may have run out"
            raise ResourceError(told, "give the same command again with fewer --jobs: it goes on") from error
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(out: Path, sources: list[Source], encoding: Encoding, stop: Event) -> None:
    """Make this process one that encodes: with one thread, and not longer than the one that started it."""
    global _own
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first tells the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _own = BlockEncoder(out, sources, encoding, Tokenizer.load(out / TOKENIZER))
    _own.stopping = stop.is_set


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _seal(number: int) -> Counter[str]:
    if _own is None:
        raise Interrupted("nothing to encode with")
    return _own.seal(number)

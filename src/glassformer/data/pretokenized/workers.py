"""Tokenizing in several processes, with the results in the order of the text."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

from glassformer.data.pretokenized.documents import Segment
from glassformer.errors import ResourceError
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.word_cache import WordCache


class BatchEncoder:
    """Encodes batches of segments with the tokenizer of a file."""

    def __init__(self, tokenizer: Path, dtype: str) -> None:
        loaded = Tokenizer.load(tokenizer)
        self.words = WordCache(loaded, dtype)
        self.end_token = np.array([loaded.eos_id], dtype).tobytes()

    def encode(self, batch: list[Segment]) -> bytes:
        """Return the ids of all segments as they are stored, with an end token before each document."""
        encoded = self.words.encode([segment.text for segment in batch])
        starts = (self.end_token * segment.starts_document for segment in batch)
        return b"".join(start + ids for start, ids in zip(starts, encoded, strict=True))


_encoder: BatchEncoder | None = None
"""The encoder of a worker process."""


def encode_batches(
    batches: Iterable[list[Segment]], tokenizer: Path, dtype: str, jobs: int
) -> Generator[tuple[list[Segment], bytes], None, None]:
    """Yield each batch with the ids of what is not held out, in order; 2 · jobs batches at most are in memory.

    Raises:
        ResourceError: a worker process died.
    """
    if jobs == 1:
        encoder = BatchEncoder(tokenizer, dtype)
        yield from ((batch, encoder.encode(_without_held_out(batch))) for batch in batches)
        return
    waiting: deque[tuple[list[Segment], Future[bytes]]] = deque()
    context = multiprocessing.get_context("spawn")  # a fork would copy the tokenizer's threads half alive
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (tokenizer, dtype))
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(_encode, _without_held_out(batch))))
            if len(waiting) == 2 * jobs:
                batch, ids = waiting.popleft()
                yield batch, ids.result()
        for batch, ids in waiting:
            yield batch, ids.result()
    except BrokenProcessPool as error:
        hint = "give the same command again with fewer --jobs: it continues"
        raise ResourceError("a worker process died: memory may have run out", hint) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _without_held_out(batch: list[Segment]) -> list[Segment]:
    return [segment for segment in batch if not segment.held_out]


def _start_worker(tokenizer: Path, dtype: str) -> None:
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main one ends the others
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _encoder = BatchEncoder(tokenizer, dtype)


def _exit_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _encode(batch: list[Segment]) -> bytes:
    assert _encoder is not None
    return _encoder.encode(batch)

"""Translate or continue any number of texts, as ids: in batches, divided among forked workers, one per core.

Decoding is many small steps, each too small for several threads: two workers with one thread each are faster than one
with two. Workers are forked, so that they share the model without loading or copying it.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.data.batches import length_buckets
from glassformer.data.corpus import RaggedArray
from glassformer.decode.incremental import ModelDecoder, TranslationDecoder
from glassformer.decode.sampling import sample
from glassformer.decode.search import Hypothesis, beam_search
from glassformer.errors import ResourceError, UsageError
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble, evaluation_mode
from glassformer.text.long_text import length_limit
from glassformer.utils.console import announced
from glassformer.utils.device import matmul_precision
from glassformer.utils.process_settings import turns

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


def decoded(
    model: Translator | Ensemble | LanguageModel,
    batches: Sequence[Sequence[int] | np.ndarray],
    decode: Callable[[Any], list[Result]],
    n_workers: int,
) -> dict[int, Result]:
    """Return what `decode` gives for a batch of rows, by the number of the row."""
    # Every step has new shapes, for each of which oneDNN would compile a kernel.
    with evaluation_mode(model), matmul_precision("highest"):
        results = map_forked(decode, batches, n_workers)
    return dict(zip(itertools.chain(*batches), itertools.chain(*results), strict=True))


MAX_TOKENS = 8192
"""Maximum source tokens per batch, padding included, each counted once per hypothesis."""
MIN_ROWS_PER_WORKER, BATCHES_PER_WORKER = 128, 2
"""Minimum hypotheses per worker; batches of each: the longest come first, so that all workers end together."""


def translate_ids(
    model: Translator | Ensemble,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    special: tuple[int, int, int],
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    first_row: int = 0,
) -> list[list[Hypothesis]]:
    """Return the `n_best` best hypotheses of each source, best first, or as many samples.

    The result does not depend on the other sources (beyond the rounding of a matrix product, which may
    decide between hypotheses that are equally good to six digits). A sample also depends on the row number of its
    source: `first_row` + its index.

    Args:
        model: the translator, or an ensemble, on any device; set to evaluation mode meanwhile.
        sources: ids as in training, EOS included. A source without ids has an empty translation.
        config: how to search, or with `config.sample` how to sample.
        special: the ids of padding, of BOS and of EOS.
        prefixes: tokens that each translation must begin with; not with sampling.
        first_row: row number of the first source, for callers that pass sources in parts.

    Raises:
        UsageError: a source longer than the model's max_len, or contradictory settings.
    """
    for number, source in enumerate(sources):
        if len(source) > model.max_len:
            message = f"source {number} has {len(source)} tokens, and the model reads at most {model.max_len}"
            raise UsageError(message, hint="truncate or split it, or train with a larger --text.max-len")
    if config.sample and prefixes is not None:
        raise UsageError("forced prefixes work with beam search, not with sampling")
    ragged, (pad, bos, eos), device = RaggedArray.from_lists(sources), special, next(model.parameters()).device
    lengths, nonempty = ragged.lengths, np.flatnonzero(ragged.lengths)
    n_hypotheses = config.n_best if config.sample else max(1, config.beam_size)
    n_workers = n_workers_for(len(nonempty) * n_hypotheses, device, MIN_ROWS_PER_WORKER)
    batch_tokens = MAX_TOKENS // n_hypotheses
    if n_workers > 1:
        batch_tokens = min(batch_tokens, int(lengths.sum()) // (n_workers * BATCHES_PER_WORKER))
    batches = [nonempty[batch[::-1]] for batch in length_buckets(lengths[nonempty], max(1, batch_tokens))]

    def translate(batch: np.ndarray) -> list[list[Hypothesis]]:
        """Return the hypotheses of the sources with these indices."""
        turns.give_way()
        # Each sample is a row of its own: samples of one source end at different times.
        repeats = config.n_best if config.sample else 1
        src, mask = (torch.from_numpy(x).to(device) for x in ragged.padded(np.repeat(batch, repeats), pad))
        decoder = TranslationDecoder(model, src, None if mask.all() else mask)
        limits = [
            length_limit(n, model.max_len, config.max_new_tokens) for n in np.repeat(lengths[batch], repeats).tolist()
        ]
        if not config.sample:
            forced = None if prefixes is None else [prefixes[i] for i in batch.tolist()]
            return beam_search(decoder, limits, config, bos=bos, eos=eos, pad=pad, prefixes=forced)
        rows = [(first_row + i) * repeats + k for i in batch.tolist() for k in range(repeats)]
        suppress = sorted({bos, pad} - {eos})
        prompts = [[bos]] * len(rows)
        samples = sample(decoder, prompts, config, limits=limits, rows=rows, eos=eos, suppress_tokens=suppress)
        return [samples[i : i + repeats] for i in range(0, len(samples), repeats)]

    found, nothing = decoded(model, batches, translate, n_workers), [Hypothesis([], 0.0, 0.0, True)]
    return [sorted(found.get(i, nothing), key=lambda h: (not h.finished, -h.score)) for i in range(len(sources))]


BATCH_ROWS = 64
"""Maximum number of prompts per batch."""
MIN_PROMPTS_PER_WORKER = 16


def generate_ids(
    model: LanguageModel | Ensemble,
    prompts: Sequence[Sequence[int]],
    config: DecodeConfig,
    *,
    eos: int | None = None,
    suppress_tokens: Sequence[int] = (),
    first_row: int = 0,
) -> list[list[int]]:
    """Return the ids that the model generates after each prompt, without the prompt.

    A continuation depends on its prompt, the settings and its row number (`first_row` + its index), not on the other
    prompts. Beyond the model's context it continues in a window (`window_start`).

    Args:
        model: the language model, or an ensemble; set to evaluation mode meanwhile.
        prompts: at least one id each; of a prompt longer than the context only the end is read.
        config: `max_new_tokens`, `temperature` (0 is greedy), `top_k`, `top_p`, `min_p`, `decode_seed`.
        eos: token that ends a continuation, not returned.
        suppress_tokens: tokens that are never generated (padding, BOS).
        first_row: row number of the first prompt, for callers that pass prompts in parts.

    Raises:
        UsageError: an empty prompt or a setting out of range.
    """
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise UsageError(f"prompt {number} is empty", "give at least one token, for example a line break")
    # Prompts of similar length go together, so that few steps only read a longer prompt.
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    device = next(model.parameters()).device
    n_workers = n_workers_for(len(order), device, MIN_PROMPTS_PER_WORKER)
    size = min(BATCH_ROWS, math.ceil(len(order) / n_workers)) or 1
    batches = [order[i : i + size] for i in range(0, len(order), size)]

    def continue_batch(batch: list[int]) -> list[list[int]]:
        turns.give_way()
        some, rows, decoder = [prompts[i] for i in batch], [first_row + i for i in batch], ModelDecoder(model)
        options: Any = {"limits": [config.max_new_tokens] * len(batch), "eos": eos, "suppress_tokens": suppress_tokens}
        return [hypothesis.ids for hypothesis in sample(decoder, some, config, rows=rows, **options)]

    written = decoded(model, batches, continue_batch, n_workers)
    return [written[i] for i in range(len(prompts))]

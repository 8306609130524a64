"""Translate any number of sources in batches sorted by length. Sources and translations are ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.data.batches import length_buckets
from glassformer.data.corpus import RaggedArray
from glassformer.decode.incremental import TranslationDecoder
from glassformer.decode.parallel import map_forked, n_workers_for
from glassformer.decode.sampling import sample
from glassformer.decode.search import Hypothesis, Special, beam_search
from glassformer.errors import UsageError
from glassformer.models import Translator
from glassformer.models.ensemble import Ensemble, evaluation_mode
from glassformer.text.long_text import length_limit
from glassformer.utils.device import matmul_precision
from glassformer.utils.process_settings import turns

MAX_TOKENS = 8192
"""Maximum source tokens per batch, padding included, each counted once per hypothesis."""
MIN_ROWS_PER_WORKER, BATCHES_PER_WORKER = 128, 2
"""Minimum hypotheses per worker; batches of each: the longest come first, so that all workers end together."""


def translate_ids(
    model: Translator | Ensemble,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    special: Special,
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
        special: the ids of padding, BOS and EOS.
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
    results = [[] if len(source) else [Hypothesis([], 0.0, 0.0, True)] for source in sources]
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

    # Every step has new shapes, for each of which oneDNN would compile a kernel.
    with evaluation_mode(model), matmul_precision("highest"):
        translated = map_forked(translate, batches, n_workers)
    for batch, of_batch in zip(batches, translated, strict=True):
        for i, hypotheses in zip(batch.tolist(), of_batch, strict=True):
            results[i] = hypotheses
    return [sorted(result, key=lambda h: (not h.finished, -h.score)) for result in results]

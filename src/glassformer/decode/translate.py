"""Translate any number of sources in batches sorted by length. Sources and translations are ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.data.batches import length_buckets
from glassformer.data.corpus import RaggedArray
from glassformer.decode.incremental import translation_decoder
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
    max_tokens: int = MAX_TOKENS,
) -> list[list[Hypothesis]]:
    """Return the `n_best` best hypotheses of each source, best first, or as many samples.

    The result does not depend on the other sources or on max_tokens (beyond the rounding of a matrix product, which may
    decide between hypotheses that are equally good to six digits). A sample also depends on the row number of its
    source: `first_row` + its index.

    Args:
        model: the translator, or an ensemble, on any device; set to evaluation mode meanwhile.
        sources: ids as in training, EOS included. A source without ids has an empty translation.
        config: how to search, or with `config.sample` how to sample.
        special: the ids of padding, BOS and EOS.
        prefixes: tokens that each translation must begin with; not with sampling.
        first_row: row number of the first source, for callers that pass sources in parts.
        max_tokens: maximum source tokens per batch, each counted once per hypothesis.

    Raises:
        UsageError: a source longer than the model's max_len, or contradictory settings.
    """
    _check(model, sources, config, prefixes)
    device = next(model.parameters()).device
    job = _Job(model, RaggedArray.from_lists(sources), config, special, prefixes, first_row)
    results = [[] if len(source) else [Hypothesis([], 0.0, 0.0, True)] for source in sources]
    lengths, nonempty = job.sources.lengths, np.flatnonzero(job.sources.lengths)
    n_hypotheses = config.n_best if config.sample else max(1, config.beam_size)
    n_workers = n_workers_for(len(nonempty) * n_hypotheses, device, MIN_ROWS_PER_WORKER)
    batch_tokens = max_tokens // n_hypotheses
    if n_workers > 1:
        batch_tokens = min(batch_tokens, int(lengths.sum()) // (n_workers * BATCHES_PER_WORKER))
    batches = [nonempty[batch[::-1]] for batch in length_buckets(lengths[nonempty], max(1, batch_tokens))]
    # Every step has new shapes, for each of which oneDNN would compile a kernel.
    with evaluation_mode(model), matmul_precision("highest"):
        translated = map_forked(job.translate, batches, n_workers)
    for batch, of_batch in zip(batches, translated, strict=True):
        for i, hypotheses in zip(batch.tolist(), of_batch, strict=True):
            results[i] = hypotheses
    return [sorted(result, key=lambda h: (not h.finished, -h.score)) for result in results]


@dataclass(frozen=True)
class _Job:
    """The arguments of `translate_ids` that all batches share."""

    model: Translator | Ensemble
    sources: RaggedArray
    config: DecodeConfig
    special: Special
    prefixes: Sequence[Sequence[int]] | None
    first_row: int

    def translate(self, batch: np.ndarray) -> list[list[Hypothesis]]:
        """Return the hypotheses of the sources with these indices."""
        turns.give_way()
        # Each sample is a row of its own: samples of one source end at different times.
        repeats = self.config.n_best if self.config.sample else 1
        sources, (pad, bos, eos) = np.repeat(batch, repeats), self.special
        device, max_len = next(self.model.parameters()).device, self.model.max_len
        src, mask = (torch.from_numpy(x).to(device) for x in self.sources.padded(sources, pad))
        decoder = translation_decoder(self.model, src, None if mask.all() else mask)
        lengths = self.sources.lengths[sources].tolist()
        limits = [length_limit(n, max_len, self.config.max_new_tokens) for n in lengths]
        if self.config.sample:
            rows = [(self.first_row + i) * repeats + k for i in batch.tolist() for k in range(repeats)]
            prompts, suppress = [[bos]] * len(rows), sorted({bos, pad} - {eos})
            samples = sample(decoder, prompts, self.config, limits=limits, rows=rows, eos=eos, suppress_tokens=suppress)
            return [samples[i : i + repeats] for i in range(0, len(samples), repeats)]
        prefixes = None if self.prefixes is None else [self.prefixes[i] for i in batch.tolist()]
        return beam_search(decoder, limits, self.config, bos=bos, eos=eos, pad=pad, prefixes=prefixes)


def _check(
    model: Translator | Ensemble,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    prefixes: Sequence[Sequence[int]] | None,
) -> None:
    for number, source in enumerate(sources):
        if len(source) > model.max_len:
            message = f"source {number} has {len(source)} tokens, and the model reads at most {model.max_len}"
            raise UsageError(message, hint="truncate or split it, or train with a larger --text.max-len")
    if config.sample and prefixes is not None:
        raise UsageError("forced prefixes work with beam search, not with sampling")

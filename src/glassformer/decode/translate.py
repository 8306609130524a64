"""`translate_ids`: any number of sources, sorted and cut into batches, searched, and put back in order.

Sources and translations are ids; text is the tokenizer's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig
from glassformer.data.batch_sampler import length_buckets
from glassformer.data.ragged import RaggedArray
from glassformer.decode.hypothesis import Hypothesis, Special
from glassformer.decode.incremental import translation_decoder
from glassformer.decode.parallel import map_forked, n_workers_for
from glassformer.decode.sampling import sample
from glassformer.decode.search import beam_search
from glassformer.errors import UsageError
from glassformer.models import Translator
from glassformer.models.ensemble import Ensemble
from glassformer.models.inference import evaluation_mode
from glassformer.utils.cpu_threads import make_room
from glassformer.utils.device import many_shapes

MAX_TOKENS = 8192
"""Most source tokens of a batch, padding included and each counted once a hypothesis."""
FEWEST_ROWS, BATCHES_EACH = 128, 2
"""Hypotheses that are worth a process of their own, and batches for it: long ones first, so that both end together."""
LENGTH_RATIO, LENGTH_MARGIN = 2, 20
"""A translation is at most LENGTH_RATIO · source + LENGTH_MARGIN tokens long: what is longer is a loop."""


def translate_ids(
    model: Translator | Ensemble,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    special: Special,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    first_row: int = 0,
    max_tokens: int = MAX_TOKENS,
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Translate each source: its `n_best` best hypotheses, best first, or as many samples.

    The answer does not depend on the other sources, nor on max_tokens (beyond the rounding of a matrix
    product, which may decide between hypotheses that are equally good to six digits). A sample depends on
    the row number of its source, too: `first_row` + its place in the list.

    Args:
        model: the translator, or an ensemble of them, wherever it is; it is put in evaluation mode meanwhile.
        sources: ids as in training, EOS included. A source without any ids has an empty translation.
        config: how to search, or with `config.sample` how to sample.
        special: the ids that pad sources, and begin and end translations.
        prefixes: tokens each translation must begin with; not with sampling.
        first_row: row number of the first source, for callers that hand over sources in pieces.
        max_tokens: most source tokens in a batch, each counted once a hypothesis.
        use_cache: False computes every prefix anew, for tests.

    Raises:
        UsageError: a source longer than the model's max_len, or settings that contradict each other.
    """
    _check(model, sources, config, prefixes)
    device = next(model.parameters()).device
    job = _Job(model, RaggedArray.of(sources), config, special, prefixes, first_row, use_cache)
    results = [[] if len(source) else [Hypothesis([], 0.0, 0.0, True)] for source in sources]
    lengths, asked = job.sources.lengths, np.flatnonzero(job.sources.lengths)
    hypotheses_each = config.n_best if config.sample else max(1, config.beam_size)
    n_processes = n_workers_for(len(asked) * hypotheses_each, device, FEWEST_ROWS)
    most = max_tokens // hypotheses_each
    if n_processes > 1:
        most = min(most, int(lengths.sum()) // (n_processes * BATCHES_EACH))
    batches = [asked[batch[::-1]] for batch in length_buckets(lengths[asked], max(1, most))]
    with evaluation_mode(model), many_shapes(device):
        found = map_forked(job.translate, batches, n_processes)
    for batch, of_batch in zip(batches, found, strict=True):
        for i, hypotheses in zip(batch.tolist(), of_batch, strict=True):
            results[i] = [Hypothesis(*facts) for facts in hypotheses]
    return [sorted(result, key=lambda h: (not h.finished, -h.score)) for result in results]


@dataclass(frozen=True)
class _Job:
    """What is the same for all batches of a call."""

    model: Translator | Ensemble
    sources: RaggedArray
    config: DecodeConfig
    special: Special
    prefixes: Sequence[Sequence[int]] | None
    first_row: int
    use_cache: bool

    def translate(self, batch: np.ndarray) -> list[list[tuple[Any, ...]]]:
        """Hypotheses, as the tuples of their fields, of the sources with these numbers."""
        make_room()
        # A sample is a sentence of its own: samples of one source end at different times.
        each = self.config.n_best if self.config.sample else 1
        numbers, (pad, bos, eos) = np.repeat(batch, each), self.special
        device, longest = next(self.model.parameters()).device, self.model.max_len
        src, real = (torch.from_numpy(x).to(device) for x in self.sources.padded(numbers, pad))
        decoder = translation_decoder(self.model, src, None if real.all() else real, self.use_cache)
        lengths = self.sources.lengths[numbers].tolist()
        limits = [length_limit(n, longest, self.config.max_new_tokens) for n in lengths]
        if self.config.sample:
            rows = [(self.first_row + i) * each + k for i in batch.tolist() for k in range(each)]
            begin, suppress_tokens = [[bos]] * len(rows), [bos, pad]
            samples = sample(
                decoder, begin, self.config, limits=limits, rows=rows, eos=eos, suppress_tokens=suppress_tokens
            )
            found = [samples[i : i + each] for i in range(0, len(samples), each)]
        else:
            forced = None if self.prefixes is None else [self.prefixes[i] for i in batch.tolist()]
            found = beam_search(decoder, limits, self.config, bos=bos, eos=eos, pad=pad, prefixes=forced)
        return [[astuple(hypothesis) for hypothesis in hypotheses] for hypotheses in found]


def _check(
    model: Translator | Ensemble,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    prefixes: Sequence[Sequence[int]] | None,
) -> None:
    for number, source in enumerate(sources):
        if len(source) > model.max_len:
            what = f"source {number} has {len(source)} tokens, and the model reads at most {model.max_len}"
            raise UsageError(what, hint="cut or split it, or train with a larger --text.max-len")
    if config.sample and prefixes is not None:
        raise UsageError("forced prefixes work with beam search, not with sampling")
    if config.n_best < 1 or config.max_new_tokens < 1:
        raise UsageError("n_best and max_new_tokens must be 1 or more")


def length_limit(n_source: int, max_len: int, max_new_tokens: int) -> int:
    """Most tokens of a translation of n_source tokens, its EOS included."""
    return max(1, min(max_len, max_new_tokens, LENGTH_RATIO * n_source + LENGTH_MARGIN))

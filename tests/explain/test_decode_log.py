"""Compare the log of a beam search with a naive search; logging does not change the search."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.browser.models import subject_of
from tests.decode.toys import BOS, EOS, PAD, TableDecoder, log_probs, random_table
from tests.helpers.for_each import for_each

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import TranslationDecoder
from glassformer.decode.search import SearchLog, beam_search
from glassformer.explain.inputs import logged_search, translate

RUN = subject_of(("translate", {}))
TOKENIZER = RUN.task.tokenizer
SPECIAL = {"bos": BOS, "eos": EOS, "pad": PAD}
SIZE = TOKENIZER.vocab_size


def search(table: torch.Tensor, config: DecodeConfig, prefix: list[int], log: SearchLog | None = None):
    return beam_search(TableDecoder(table), [9], config, **SPECIAL, prefixes=[prefix], log=log)[0]


@for_each("seed", range(6))
@for_each(("beam_size", "penalty", "n_prefix"), [(1, 1.0, 0), (3, 0.6, 0), (4, 1.0, 2)])
def test_what_is_recorded_equals_a_naive_search(seed: int, beam_size: int, penalty: float, n_prefix: int) -> None:
    table, prefix = random_table(seed, 1, SIZE), [5, 6][:n_prefix]
    config = DecodeConfig(beam_size=beam_size, length_penalty=penalty, n_best=min(2, beam_size))
    logged, steps = logged_search(lambda log: search(table, config, prefix, log), TOKENIZER)
    plain = search(table, config, prefix)
    assert [(h.ids, h.score, h.log_prob, h.finished) for h in logged[: len(plain)]] == [
        (h.ids, h.score, h.log_prob, h.finished) for h in plain
    ]
    live: list[tuple[list[int], float]] = [([], 0.0)]
    for t, step in enumerate(steps):
        extensions = []
        for parent, (ids, total) in enumerate(live):
            step_log_probs = log_probs(table, 0, ids)
            free = [v for v in range(SIZE) if v not in (PAD, BOS)]
            for v in [prefix[t]] if t < n_prefix else free:
                extensions.append((total + step_log_probs[v], parent, v, step_log_probs[v]))
        extensions.sort(key=lambda e: -e[0])
        wanted = 1 if beam_size == 1 else 2 * beam_size
        assert [(c.parent, c.id) for c in step] == [(p, v) for _, p, v, _ in extensions[:wanted]]
        lived: list[tuple[list[int], float]] = []
        for rank, (c, (total, parent, v, log_prob)) in enumerate(zip(step, extensions, strict=False)):
            assert (c.total, c.log_prob) == pytest.approx((total, log_prob), abs=1e-5)
            assert c.score == pytest.approx(total / (t + 1) ** penalty, abs=1e-5)
            assert c.finished == (v == EOS and rank < beam_size)
            lives = v != EOS and len(lived) < beam_size
            assert c.row == (len(lived) if lives else None)
            if lives:
                lived.append(([*live[parent][0], v], total))
        live = lived
    n_finished = sum(c.finished for step in steps for c in step)
    assert sum(h.finished for h in logged) == n_finished
    for h in logged:  # each is linked to its candidates
        assert h.end is not None
        t, index = h.end
        path = [steps[t][index]]
        for step in reversed(steps[:t]):
            path.append(next(c for c in step if c.row == path[-1].parent))
        assert [c.id for c in reversed(path)] == [*h.ids, *[EOS] * h.finished]
        assert math.fsum(c.log_prob for c in path) == pytest.approx(h.log_prob, abs=1e-5)


def test_a_log_skips_finished_sentences_and_names_its_kind() -> None:
    """One of 16 sentences ends at once: it stays in the batch, but is no longer logged."""
    model: Any = RUN.model
    decoder, heard = TranslationDecoder(model, torch.arange(16)[:, None] % SIZE), list[list[int]]()
    longest, config = [1] + [4] * 15, DecodeConfig(beam_size=2)
    beam_search(decoder, longest, config, **SPECIAL, log=lambda step: heard.append(step.sentence.tolist()))
    assert heard[0] == list(range(16))
    assert all(0 not in sentences for sentences in heard[1:]) and len(heard) > 1
    sampled = translate(model, TOKENIZER, [5, 6, EOS], DecodeConfig(sample=True, n_best=3, max_new_tokens=5), [])
    assert (sampled.kind, len(sampled.hypotheses), sampled.steps) == ("sample", 3, [])
    searched = translate(model, TOKENIZER, [5, 6, EOS], DecodeConfig(beam_size=2, max_new_tokens=5), [7])
    assert (searched.kind, searched.prefix, searched.hypotheses[0].ids[0]) == ("beam", [7], 7)

"""Sampling: filters against a naive reading, draws against their distribution, rows against themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.toys import BOS, EOS, TableDecoder, log_probs, random_table
from tests.helpers.for_each import for_each

from glassformer.config import DecodeConfig
from glassformer.decode.sampling import filter_mask, sample, sample_tokens, uniform_numbers
from glassformer.errors import DivergedError
from glassformer.text.long_text import window_start


def naive_allowed(p, top_k, top_p, min_p):
    """The ids that pass the filters, one at a time."""
    ranked = sorted((v for v in range(len(p)) if p[v] > 0), key=lambda v: (-p[v], v))
    passed, held = set(), 0.0
    for rank, v in enumerate(ranked):
        if (top_k == 0 or rank < top_k) and (top_p >= 1 or held < top_p) and p[v] >= min_p * p[ranked[0]]:
            passed.add(v)
        held += p[v]
    return passed


@settings(max_examples=300, deadline=None)
@given(
    weights=st.lists(st.integers(0, 20), min_size=1, max_size=12).filter(any),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.01, 0.301, 0.499, 0.703, 0.951, 1.0]),
    min_p=st.sampled_from([0.0, 0.11, 0.49, 1.0]),
)
def test_filters_equal_a_naive_reading(weights, top_k, top_p, min_p):
    p = torch.tensor([weights], dtype=torch.float64) / sum(weights)
    mask = filter_mask(p, DecodeConfig(top_k=top_k, top_p=top_p, min_p=min_p))[0]
    assert set(mask.nonzero()[:, 0].tolist()) == naive_allowed(p[0].tolist(), top_k, top_p, min_p)
    assert mask[p[0].argmax()]


def numbers(seed, n):
    """Return one random number for each of n rows."""
    return torch.from_numpy(uniform_numbers(seed, range(n), 1))[:, 0]


@for_each(
    "config",
    [
        DecodeConfig(),
        DecodeConfig(temperature=0.5),
        DecodeConfig(temperature=2.0, top_k=4),
        DecodeConfig(top_p=0.8),
        DecodeConfig(min_p=0.2),
        DecodeConfig(temperature=1.3, top_k=6, top_p=0.9, min_p=0.05),
    ],
)
def test_draws_follow_the_filtered_softmax(config):
    n, logits = 20_000, torch.tensor([1.0, 0.3, -0.5, 2.0, -3.0, 0.9, -1.0, 1.6])
    p = (logits.double() / config.temperature).softmax(-1)
    p = p * filter_mask(p[None], config)[0]
    expected = n * p / p.sum()
    token, _ = sample_tokens(logits.expand(n, -1), config, numbers(7, n))
    counts = torch.bincount(token, minlength=8).double()
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_square < 24.3  # 99.9% quantile at 7 degrees of freedom


@for_each("temperature", [0.0, 1e-300])
def test_no_temperature_is_greedy(temperature):
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(1))
    token, _ = sample_tokens(logits, DecodeConfig(temperature=temperature), numbers(0, 50))
    assert torch.equal(token, logits.argmax(-1))


def test_the_extremes_of_u_draw_tokens_that_are_allowed():
    logits = torch.tensor([[-torch.inf, 0.0, 1.0, -torch.inf]]).expand(2, -1)
    token, _ = sample_tokens(logits, DecodeConfig(), torch.tensor([0.0, 1 - 2.0**-52], dtype=torch.float64))
    assert token.tolist() == [1, 2]


def test_a_row_has_the_same_numbers_whatever_the_batch_and_its_length():
    table = uniform_numbers(2**32 - 1, [3, 0, 2**40], 7)
    assert np.array_equal(table[2:], uniform_numbers(2**32 - 1, [2**40], 9)[:, :7])
    assert np.array_equal(table[:1], uniform_numbers(2**32 - 1, [3], 7))
    assert len(np.unique(table)) == table.size


@given(max_len=st.integers(1, 40), n=st.integers(1, 200))
def test_the_window_holds_half_to_all_of_the_context(max_len, n):
    start = window_start(n, max_len)
    assert start == 0 if n <= max_len else max_len // 2 < n - start <= max_len
    assert start <= window_start(n + 1, max_len)


def test_prompts_of_unequal_length_give_what_they_give_alone():
    table = random_table(0, 1, 9).expand(20, -1, -1, -1)
    prompts = [[3 + (i * k) % 6 for k in range(1 + i % 7)] for i in range(20)]
    limits = [1 + i % 5 for i in range(20)]
    config = DecodeConfig(temperature=0.9, top_p=0.95)
    together = sample(TableDecoder(table), prompts, config, limits=limits, rows=list(range(20)), eos=EOS)
    for i in range(20):
        decoder = TableDecoder(table[:1])
        (alone,) = sample(decoder, prompts[i : i + 1], config, limits=limits[i : i + 1], rows=[i], eos=EOS)
        assert alone == together[i]
        assert len(alone.ids) + alone.finished <= limits[i]
        assert alone.finished or len(alone.ids) == limits[i]
    assert any(h.finished for h in together) and not all(h.finished for h in together)


def test_log_prob_and_score_are_the_model_s_own_of_what_was_written():
    table, config = random_table(1, 6, 7), DecodeConfig(length_penalty=1.0, temperature=0.5, top_k=3)
    found = sample(TableDecoder(table), [[BOS]] * 6, config, limits=[8] * 6, rows=range(6), eos=EOS)
    for i, h in enumerate(found):
        text = h.ids + [EOS] * h.finished
        total = sum(log_probs(table, i, h.ids[:k])[v] for k, v in enumerate(text))
        assert h.log_prob == pytest.approx(total, abs=1e-4)
        assert h.score == pytest.approx(h.log_prob / len(text))


def test_done_rows_leave_the_batch():
    table = torch.zeros(16, 6, 6, 6)
    table[:8, ..., EOS] = 100.0
    table[8:, ..., EOS] = -100.0
    decoder = TableDecoder(table)
    sample(decoder, [[3]] * 16, DecodeConfig(), limits=[5] * 16, rows=range(16), eos=EOS)
    assert decoder.rows_seen == [16, 8, 8, 8, 8]


def test_nan_is_an_error_and_not_a_text():
    with pytest.raises(DivergedError, match="NaN"):
        sample_tokens(torch.full((1, 4), torch.nan), DecodeConfig(), torch.zeros(1, dtype=torch.float64))

"""Sampling and beam search: against naive readings, enumeration and their distribution, rows against themselves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.toys import BOS, EOS, PAD, TableDecoder, language_model, log_probs, random_table, sentences
from tests.helpers.for_each import for_each

from glassformer.config import DecodeConfig
from glassformer.decode.jobs import generate_ids
from glassformer.decode.sampling import filter_mask, sample, sample_tokens, uniform_numbers
from glassformer.decode.search import beam_search
from glassformer.errors import DivergedError, UsageError
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


# Continuing prompts with a real (random) language model, within its context and beyond


@pytest.fixture(scope="module", params=["rotary", "learned"])
def model(request):
    return language_model(positions=request.param)


def by_definition(model, prompt, config, row, eos):
    """One token at a time, one row, no cache: what `generate_ids` must give."""
    text, n = list(prompt), len(prompt) + config.max_new_tokens
    u = torch.from_numpy(uniform_numbers(config.decode_seed, [row], n))
    while len(text) < n:
        seen = text[window_start(len(text), model.max_len) :]
        with torch.no_grad():
            logits = model(torch.tensor([seen]))[:, -1]
        token, _ = sample_tokens(logits, config, u[:, len(text)])
        if int(token) == eos:
            break
        text.append(int(token))
    return text[len(prompt) :]


@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(max_new_tokens=40, decode_seed=3),  # beyond the context of 16
        DecodeConfig(max_new_tokens=9, temperature=0.7, top_k=5),
        DecodeConfig(max_new_tokens=25, temperature=0),
    ],
    ids=["long", "filtered", "greedy"],
)
def test_equals_the_definition_for_prompts_of_any_length(model, config, monkeypatch):
    """In batches of any size and in several processes, with a cache."""
    prompts = [*sentences(0, 6, 19), [4] * 16, [5] * 17, list(range(3, 19)) * 3]
    eos = EOS
    expected = [by_definition(model, prompt, config, 100 + i, eos) for i, prompt in enumerate(prompts)]
    for batch_rows in (64, 1):
        monkeypatch.setattr("glassformer.decode.jobs.BATCH_ROWS", batch_rows)
        assert generate_ids(model, prompts, config, eos=eos, first_row=100) == expected
    with monkeypatch.context() as patch:
        patch.setattr("glassformer.decode.jobs.n_workers_for", lambda *_: 3)
        assert generate_ids(model, prompts, config, eos=eos, first_row=100) == expected


def test_banned_tokens_are_not_written_and_nothing_ends_without_an_end_token(model):
    texts = generate_ids(model, [[5]] * 20, DecodeConfig(max_new_tokens=20), suppress_tokens=[PAD, 7])
    assert not {PAD, 7} & {token for text in texts for token in text}
    assert all(len(text) == 20 for text in texts) and generate_ids(model, [], DecodeConfig()) == []
    with pytest.raises(UsageError, match="prompt 1 is empty"):
        generate_ids(model, [[5], []], DecodeConfig())


# Beam search against enumeration of every text, against a naive search, and against its promises


def search(table, limits, prefixes=None, **config):
    decoder = TableDecoder(table)
    special = {"bos": BOS, "eos": EOS, "pad": PAD}
    return beam_search(decoder, limits, DecodeConfig(**config), **special, prefixes=prefixes), decoder


def naive_beam(table, sentence, limit, config, prefix=()):
    """The definition in search.py's docstring, for one sentence, in lists, without the shortcut."""
    live, finished, n_finished = [([], 0.0)], [], 0
    for t in range(limit):
        extensions = []
        for ids, total in live:
            step = log_probs(table, sentence, ids)
            free = [v for v in range(len(step)) if v not in (PAD, BOS)]
            for v in [prefix[t]] if t < len(prefix) else free:
                extensions.append(([*ids, v], total + step[v]))
        extensions.sort(key=lambda item: -item[1])
        ended = [item for item in extensions[: config.beam_size] if item[0][-1] == EOS]
        finished += [(ids[:-1], total, total / (t + 1) ** config.length_penalty) for ids, total in ended]
        n_finished += len(ended)
        live = [item for item in extensions if item[0][-1] != EOS][: config.beam_size]
        if config.beam_size == 1 and ended:
            live = [([], -math.inf)]  # the greedy search ends with its only hypothesis
        finished.sort(key=lambda item: -item[2])
        best_live = live[0][1] / (t + 1) ** config.length_penalty
        if n_finished >= config.beam_size and finished[config.n_best - 1][2] >= best_live:
            break
    found = [(ids, total, True) for ids, total, _ in finished]
    cut = [(ids, total, False) for ids, total in live if total > -math.inf]
    return (found + cut)[: config.n_best]


def same(found, expected):
    assert [(h.ids, h.finished) for h in found] == [(ids, finished) for ids, _, finished in expected]
    assert [h.log_prob for h in found] == pytest.approx([total for _, total, _ in expected], abs=1e-4)


@pytest.mark.row("3.7", "5.7", "5c")
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_equals_a_naive_search_without_shortcuts(data):
    """A beam of one is the greedy choice; a text ends with its end token, or is cut and says so."""
    beam_size = data.draw(st.integers(1, 6))
    config = {
        "beam_size": beam_size,
        "n_best": data.draw(st.integers(1, beam_size)),
        "length_penalty": data.draw(st.sampled_from([0.0, 0.6, 1.0, 1.5, -0.5])),
    }
    limits = data.draw(st.lists(st.integers(1, 9), max_size=12))
    vocab_size = data.draw(st.integers(4, 9))
    prefixes = [data.draw(st.lists(st.integers(3, vocab_size - 1), max_size=min(2, limit))) for limit in limits]
    table = random_table(data.draw(st.integers(0, 10**6)), len(limits), vocab_size)
    table[..., EOS] += data.draw(st.sampled_from([-2.0, 0.0, 2.0]))
    found, _ = search(table, limits, prefixes, **config)
    for i, limit in enumerate(limits):
        same(found[i], naive_beam(table, i, limit, DecodeConfig(**config), prefixes[i]))
        lengths = [len(h.ids) + h.finished for h in found[i]]
        scores = [h.log_prob / length ** config["length_penalty"] for h, length in zip(found[i], lengths, strict=True)]
        assert [h.score for h in found[i]] == pytest.approx(scores)


def test_done_sentences_leave_the_batch_and_a_search_stops_as_soon_as_nothing_can_win():
    table = torch.zeros(16, 5, 5, 5)
    table[..., 3] = 5.0
    table[:8, ..., EOS] = 20.0  # half of them end at once, by far the best they can do
    found, decoder = search(table, [10] * 16, beam_size=2)
    assert decoder.rows_seen == [16, *[8 * 2] * 9]
    assert [hypotheses[0].ids for hypotheses in found[:8]] == [[]] * 8
    assert all(len(hypotheses[0].ids) >= 9 for hypotheses in found[8:])
    (found,), decoder = search(table[:1], [1000], beam_size=4, length_penalty=0.0)
    assert found[0].ids == [] and found[0].finished and len(decoder.rows_seen) == 1


def test_ties_are_decided_in_the_same_way_every_time():
    alone, _ = search(torch.zeros(1, 50, 50, 50), [4], beam_size=3, n_best=3)
    assert search(torch.zeros(9, 50, 50, 50), [4] * 9, beam_size=3, n_best=3)[0] == alone * 9
    greedy, _ = search(torch.zeros(1, 50, 50, 50) - torch.eye(50)[2], [4], beam_size=1)
    assert greedy[0][0].ids == [3, 3, 3, 3]  # the lowest id that may be written


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(UsageError, match="prefix 0 holds a BOS, EOS or padding id"):
        search(torch.zeros(1, 5, 5, 5), [3], [[2]])
    with pytest.raises(DivergedError, match="NaN"):
        search(torch.full((1, 5, 5, 5), torch.nan), [3], beam_size=2)

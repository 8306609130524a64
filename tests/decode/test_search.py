"""Beam search against enumeration of every text, against a naive search, and against its promises."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.toys import BOS, EOS, PAD, TableDecoder, log_probs, random_table

from glassformer.config import DecodeConfig
from glassformer.decode.search import beam_search
from glassformer.errors import DivergedError, UsageError


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

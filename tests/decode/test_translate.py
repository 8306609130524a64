"""Translating many sources with a real (random) Translator: nothing but the source decides the answer."""

from __future__ import annotations

import pytest
import torch
from tests.decode.toys import BOS, EOS, PAD, sentences, translator

from glassformer.config import DecodeConfig
from glassformer.decode.jobs import translate_ids
from glassformer.decode.search import Hypothesis
from glassformer.errors import UsageError
from glassformer.text.long_text import length_limit

VARIANTS = [
    {},
    {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False},
    {"positions": "learned", "pre_norm": False, "d_head": 3},
]


@pytest.fixture(scope="module", params=VARIANTS, ids=["paper", "modern", "post-norm"])
def model(request):
    return translator(**request.param)


def translate(model, sources, options=None, **config):
    return translate_ids(model, sources, DecodeConfig(**config), (PAD, BOS, EOS), **(options or {}))


def assert_same(found, expected):
    """Equal but for the rounding of another shape of matrix product."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert [(h.ids, h.finished) for h in a] == [(h.ids, h.finished) for h in b]
        assert [h.log_prob for h in a] == pytest.approx([h.log_prob for h in b], abs=1e-3)


WAYS = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 3, "max_new_tokens": 16},
    {"sample": True, "n_best": 2, "top_p": 0.9},
]


@pytest.mark.parametrize("way", WAYS[:2], ids=["greedy", "beam"])
def test_batch_size_and_order_change_nothing(model, way, monkeypatch):
    sources = sentences(1, 8)
    expected = [translate(model, [source], **way)[0] for source in sources]
    assert_same(translate(model, sources, **way), expected)
    assert_same(translate(model, sources[::-1], **way)[::-1], expected)
    monkeypatch.setattr("glassformer.decode.jobs.MAX_TOKENS", 40)
    assert_same(translate(model, sources, **way), expected)


def test_a_sample_is_that_of_its_place_whatever_the_batch(monkeypatch):
    """A stream of the same sentence has other samples in every place, also beyond the first piece."""
    sources, config = sentences(2, 14), {"sample": True, "n_best": 3, "temperature": 1.2}
    model = translator()
    whole = translate(model, sources, **config)
    assert translate(model, sources, decode_seed=1, **config) != whole
    rest = translate(model, sources[1:], {"first_row": 1}, **config)
    assert_same(translate(model, sources[:1], **config) + rest, whole)
    assert translate(model, sources[1:], **config) != rest
    monkeypatch.setattr("glassformer.decode.jobs.MAX_TOKENS", 1)
    assert_same(translate(model, sources, **config), whole)


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "sample"])
def test_log_prob_is_what_the_model_says_of_the_whole_text(model, way):
    """In one pass without a cache."""
    sources = sentences(5, 5)
    for source, hypotheses in zip(sources, translate(model, sources, **way), strict=True):
        for h in hypotheses:
            text = h.ids + [EOS] * h.finished
            with torch.no_grad():
                logits = model(torch.tensor([source]), torch.tensor([[BOS, *text[:-1]]]))[0]
            total = logits.log_softmax(-1)[torch.arange(len(text)), text].sum()
            assert h.log_prob == pytest.approx(float(total), abs=1e-3)
            assert h.score == pytest.approx(h.log_prob / len(text), abs=1e-6)


def test_prefixes(model, monkeypatch):
    monkeypatch.setattr("glassformer.decode.jobs.MAX_TOKENS", 80)
    sources = sentences(6, 6)
    prefixes = [[], [5], [7, 9, 4], [], [6, 6], [11]]
    found = translate(model, sources, {"prefixes": prefixes}, beam_size=3, max_new_tokens=14)
    for i, prefix in enumerate(prefixes):
        assert found[i][0].ids[: len(prefix)] == prefix
        assert_same([found[i]], translate(model, [sources[i]], {"prefixes": [prefix]}, beam_size=3, max_new_tokens=14))


def test_limits(model):
    for (h,) in translate(model, sentences(7, 10), beam_size=2, max_new_tokens=3):
        assert len(h.ids) + h.finished <= 3
    assert len(translate(model, [[5] * model.max_len], beam_size=2)[0][0].ids) <= model.max_len
    assert [length_limit(*sizes) for sizes in ((10, 256, 256), (200, 256, 300), (10, 256, 7))] == [40, 256, 7]


def test_empty_sources_have_empty_translations():
    model, nothing = translator(), [Hypothesis([], 0.0, 0.0, True)]
    first, some, last = translate(model, [[], [5, 6], []], beam_size=2)
    assert first == last == nothing and translate(model, []) == []
    assert_same([some], translate(model, [[5, 6]], beam_size=2))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_while_decoding_and_the_mode_comes_back(training):
    model = translator(dropout=0.5).train(training)
    assert translate(model, sentences(8, 5)) == translate(model, sentences(8, 5))
    with pytest.raises(UsageError):
        translate(model, [[5] * 99])
    assert model.training == training


def test_what_cannot_be_translated_is_refused():
    model = translator()
    with pytest.raises(UsageError, match="not with sampling"):
        translate(model, [[5]], {"prefixes": [[5]]}, sample=True)
    with pytest.raises(UsageError, match="source 1 has 33 tokens, and the model reads at most 32"):
        translate(model, [[5], [5] * 33])


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "beam", "sample"])
def test_processes_write_what_one_does(way, monkeypatch):
    model, sources = translator(), [*sentences(0, 9), [], *sentences(3, 5)]
    alone = translate(model, sources, **way)
    monkeypatch.setattr("glassformer.decode.jobs.n_workers_for", lambda *_: 3)
    assert_same(translate(model, sources, **way), alone)

"""Translating with real (random) Translators, one or several: nothing but the source decides the answer."""

import math

import pytest
import torch
from tests.decode.toys import BOS, EOS, PAD, language_model, sentences, translator

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import ModelDecoder, TranslationDecoder
from glassformer.decode.jobs import generate_ids, translate_ids
from glassformer.decode.search import Hypothesis
from glassformer.errors import UsageError
from glassformer.models.bf16 import cast_for_inference
from glassformer.models.ensemble import Ensemble, mean_logits, members_of
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


# Several models that decode together: every next token is that of the mean of their probabilities


@pytest.fixture(scope="module")
def translators():
    """Of different sizes, whose vocabulary is the same."""
    return Ensemble([translator(0), translator(1, n_layers=1, d_ff=16), translator(2)]).eval()


def test_the_mean_is_of_probabilities_not_of_logits():
    sure, unsure = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    mean = mean_logits([sure, unsure]).exp()
    assert torch.allclose(mean, (sure.softmax(-1) + unsure.softmax(-1)) / 2)


def test_a_search_finds_what_one_pass_finds_as_likely(translators):
    for source, found in zip(s := sentences(3, 8), translate(translators, s, **WAYS[1]), strict=True):
        assert len(found) == 3
        for h in (h for h in found if h.finished):
            with torch.inference_mode():
                logits = translators(torch.tensor([source]), torch.tensor([[BOS, *h.ids]]))[0]
            total = logits.log_softmax(-1)[torch.arange(len(h.ids) + 1), [*h.ids, EOS]].sum()
            assert h.log_prob == pytest.approx(float(total), abs=1e-3)


def test_language_models_write_the_likeliest_of_the_mean():
    both = Ensemble([language_model(0), language_model(1, d_ff=16)]).eval()
    greedy = DecodeConfig(temperature=0.0, max_new_tokens=8)
    [written] = generate_ids(both, [[4, 5]], greedy)
    text = [4, 5]
    for token in written:
        with torch.inference_mode():
            assert token == int(both(torch.tensor([text]))[0, -1].argmax())
        text.append(token)
    decoder = ModelDecoder(both)
    tokens = torch.tensor([text])
    first = decoder.step(tokens)
    decoder.reset()
    assert torch.equal(decoder.step(tokens), first)


def test_the_shortest_context_counts():
    short = Ensemble([translator(max_len=32), translator(max_len=12)])
    assert TranslationDecoder(short, torch.tensor([[4, 5, 2]])).max_len == short.max_len == 12


def test_every_member_is_cast():
    whole = Ensemble([translator(0, tie_embeddings=True), translator(1)]).eval()
    cut = cast_for_inference(whole, "bf16")
    assert not cut.training and len(members_of(cut)) == 2
    src, tgt = torch.tensor([[4, 5, 2]]), torch.tensor([[BOS, 7]])
    with torch.inference_mode():
        output = [cast_for_inference(member, "bf16")(src, tgt) for member in whole.members]
        assert torch.allclose(cut(src, tgt), mean_logits(output))
        assert not torch.equal(cut(src, tgt), whole(src, tgt))
    assert math.isfinite(float(cut(src, tgt).sum()))

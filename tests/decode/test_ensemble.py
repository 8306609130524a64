"""Several models that decode together: every next token is that of the mean of their probabilities."""

from __future__ import annotations

import math

import pytest
import torch
from tests.decode.toys import BOS, EOS, PAD, language_model, sentences, translator

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import ModelDecoder, TranslationDecoder
from glassformer.decode.jobs import generate_ids, translate_ids
from glassformer.models.bf16 import cast_for_inference
from glassformer.models.ensemble import Ensemble, mean_logits, members_of

BEAM = DecodeConfig(beam_size=4, n_best=3, max_new_tokens=16)


@pytest.fixture(scope="module")
def translators():
    """Of different sizes, whose vocabulary is the same."""
    return Ensemble([translator(0), translator(1, n_layers=1, d_ff=16), translator(2)]).eval()


def translate(model, sources, config=BEAM, **options):
    return translate_ids(model, sources, config, (PAD, BOS, EOS), **options)


def test_the_mean_is_of_probabilities_not_of_logits() -> None:
    sure, unsure = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    mean = mean_logits([sure, unsure]).exp()
    assert torch.allclose(mean, (sure.softmax(-1) + unsure.softmax(-1)) / 2)


def test_a_search_finds_what_one_pass_finds_as_likely(translators) -> None:
    for source, found in zip(s := sentences(3, 8), translate(translators, s), strict=True):
        assert len(found) == 3
        for h in (h for h in found if h.finished):
            with torch.inference_mode():
                logits = translators(torch.tensor([source]), torch.tensor([[BOS, *h.ids]]))[0]
            total = logits.log_softmax(-1)[torch.arange(len(h.ids) + 1), [*h.ids, EOS]].sum()
            assert h.log_prob == pytest.approx(float(total), abs=1e-3)


def test_language_models_write_the_likeliest_of_the_mean() -> None:
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


def test_the_shortest_context_counts() -> None:
    short = Ensemble([translator(max_len=32), translator(max_len=12)])
    assert TranslationDecoder(short, torch.tensor([[4, 5, 2]])).max_len == short.max_len == 12


def test_every_member_is_cast() -> None:
    whole = Ensemble([translator(0, tie_embeddings=True), translator(1)]).eval()
    cut = cast_for_inference(whole, "bf16")
    assert not cut.training and len(members_of(cut)) == 2
    src, tgt = torch.tensor([[4, 5, 2]]), torch.tensor([[BOS, 7]])
    with torch.inference_mode():
        output = [cast_for_inference(member, "bf16")(src, tgt) for member in whole.members]
        assert torch.allclose(cut(src, tgt), mean_logits(output))
        assert not torch.equal(cut(src, tgt), whole(src, tgt))
    assert math.isfinite(float(cut(src, tgt).sum()))

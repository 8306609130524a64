"""`LanguageModel`: the future never changes the past, the cache changes nothing, and GPT-2 is one of its forms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import copy, copy_stacked, randomise
from tests.helpers.for_each import for_each

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel
from glassformer.nn import attention

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel


SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)
POSITIONS = st.sampled_from(["sinusoidal", "learned", "rotary", "none"])
LONGEST_NGRAM = st.sampled_from([0, 2, 5])


def model_of(**changes: object) -> LanguageModel:
    model = LanguageModel(replace(SMALL, **changes), 20, 40)
    randomise(model)
    return model


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 12),
    at=st.integers(1, 11),
    positions=POSITIONS,
    pre_norm=st.booleans(),
    max_ngram=LONGEST_NGRAM,
    seed=st.integers(0, 99),
)
def test_a_future_token_never_changes_the_past(n, at, positions, pre_norm, max_ngram, seed) -> None:
    at = min(at, n - 1)
    torch.manual_seed(seed)
    model = model_of(positions=positions, pre_norm=pre_norm, max_ngram=max_ngram)
    ids = torch.randint(20, (2, n))
    other = ids.clone()
    other[:, at:] = (ids[:, at:] + torch.randint(1, 20, (2, n - at))) % 20
    before, after = model(ids), model(other)
    torch.testing.assert_close(before[:, :at], after[:, :at], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[:, at:], after[:, at:], atol=1e-5)
    torch.testing.assert_close(model(ids[:, :at]), before[:, :at], atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    chunks=st.lists(st.integers(1, 5), min_size=1, max_size=7),
    positions=POSITIONS,
    max_ngram=LONGEST_NGRAM,
    seed=st.integers(0, 99),
)
def test_cached_equals_uncached(chunks, positions, max_ngram, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(positions=positions, max_ngram=max_ngram)
    ids = torch.randint(20, (3, sum(chunks)))
    cache = model.new_cache()
    parts = [model(part, cache=cache) for part in ids.split(chunks, dim=1)]
    assert cache.length == ids.shape[1]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), atol=1e-5, rtol=1e-5)


def test_the_mask_is_built_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = attention.causal_mask
    monkeypatch.setattr(attention, "causal_mask", lambda *args: built.append(args) or build(*args))
    model_of(n_layers=5)(torch.randint(20, (2, 7)))
    assert [args[:2] for args in built] == [(7, 7)]


@for_each("max_ngram", [0, 4])
def test_a_row_may_change_places_in_the_cache(max_ngram: int) -> None:
    model, rows = model_of(max_ngram=max_ngram), torch.tensor([2, 0, 2])
    ids = torch.randint(20, (3, 6))
    cache = model.new_cache()
    model(ids[:, :4], cache=cache)
    cache.select(rows)
    got = model(ids[rows][:, 4:], cache=cache)
    torch.testing.assert_close(got, model(ids[rows])[:, 4:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def from_gpt2(theirs: GPT2LMHeadModel) -> LanguageModel:
    """Our model with GPT-2's weights. It does not scale its embeddings, so the two uses of them are untied."""
    c = theirs.config
    config = ModelConfig(
        n_layers=c.n_layer,
        d_model=c.n_embd,
        n_heads=c.n_head,
        dropout=0.0,
        pre_norm=True,
        activation="gelu",
        positions="learned",
        tie_embeddings=False,
    )
    ours = LanguageModel(config, c.vocab_size, c.n_positions)
    transformer = theirs.transformer
    ours.embedding.weight.copy_(transformer.wte.weight / ours.embedding.scale)
    ours.embedding.positions.weight.copy_(transformer.wpe.weight)
    ours.output.weight.copy_(theirs.lm_head.weight)
    copy(ours.decoder.norm, transformer.ln_f)
    for layer, other in zip(ours.decoder.layers, transformer.h, strict=True):
        copy_stacked(layer.self_attention, other.attn.c_attn.weight.t(), other.attn.c_attn.bias)
        copy(layer.self_attention.o_proj, other.attn.c_proj, transposed=True)
        copy(layer.self_residual.norm, other.ln_1)
        copy(layer.feed_forward.up_proj, other.mlp.c_fc, transposed=True)
        copy(layer.feed_forward.down_proj, other.mlp.c_proj, transposed=True)
        copy(layer.feed_forward_residual.norm, other.ln_2)
    return ours.eval()


@pytest.fixture
def gpt2() -> GPT2LMHeadModel:
    # GPT-2 approximates GELU by a tanh; ours is exact, so the reference is told to be.
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=50,
        n_embd=16,
        n_layer=3,
        n_head=4,
        n_positions=12,
        activation_function="gelu",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    randomise(model)
    return model


def test_parity_with_gpt2(gpt2: GPT2LMHeadModel) -> None:
    ids = torch.randint(50, (2, 12))
    expected = gpt2(ids).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(from_gpt2(gpt2)(ids), expected, atol=1e-5, rtol=0)


def test_parity_with_gpt2s_cache(gpt2: GPT2LMHeadModel) -> None:
    ours, ids = from_gpt2(gpt2), torch.randint(50, (2, 9))
    theirs = gpt2(ids[:, :5], use_cache=True)
    theirs = gpt2(ids[:, 5:], past_key_values=theirs.past_key_values)
    cache = ours.new_cache()
    ours(ids[:, :5], cache=cache)
    torch.testing.assert_close(ours(ids[:, 5:], cache=cache), theirs.logits, atol=1e-5, rtol=0)

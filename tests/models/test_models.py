"""Models: padding, the batch, the future, cache and beam change nothing, and every choice of `ModelConfig` does.

`test_import_families.py` has BERT, GPT-2 and Marian, which are forms of them. Copies that multiply in bf16 are near
the model, apart from it, and the same for a text in any batch.
"""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from torch import nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.bf16 import Bf16Linear, cast_for_inference
from glassformer.models.decoder_models import BASE, BIG

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)
POSITIONS = st.sampled_from(["sinusoidal", "learned", "rotary", "none"])
LONGEST_NGRAM, SEEDS = st.sampled_from([0, 2, 5]), st.integers(0, 99)


def model_of(kind: Any, **changes: object) -> Any:
    sizes = (20, 3, 40) if kind is TextClassifier else (20, 40)
    return randomise(kind(replace(SMALL, **changes), *sizes))


@pytest.mark.row("2a", "4.4", "4c")
@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 10), min_size=1, max_size=4),
    extra=st.integers(0, 6),
    pooling=st.sampled_from(["mean", "max", "mean+max", "first"]),
    positions=POSITIONS,
    pre_norm=st.booleans(),
    seed=SEEDS,
)
def test_padding_the_batch_and_its_order_change_no_class(lengths, extra, pooling, positions, pre_norm, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(TextClassifier, pooling=pooling, positions=positions, pre_norm=pre_norm)
    texts = [torch.randint(20, (n,)) for n in lengths]
    alone = torch.cat([model(text[None]) for text in texts])
    order = torch.randperm(len(texts))
    ids = torch.randint(20, (len(texts), max(lengths) + extra))  # padding that would be read if it could
    real = torch.arange(ids.shape[1]) < torch.tensor(lengths)[order][:, None]
    for row, i in enumerate(order.tolist()):
        ids[row, : lengths[i]] = texts[i]
    torch.testing.assert_close(model(ids, real), alone[order], atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=4),
    extra=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    positions=POSITIONS,
    pre_norm=st.booleans(),
    seed=SEEDS,
)
def test_padding_and_the_batch_change_no_translation(lengths, extra, positions, pre_norm, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(Translator, positions=positions, pre_norm=pre_norm)
    longest = [max(column) + more for column, more in zip(zip(*lengths, strict=True), extra, strict=True)]
    src, tgt = (torch.randint(20, (len(lengths), n)) for n in longest)
    real = torch.arange(longest[0]) < torch.tensor([s for s, _ in lengths])[:, None]
    together = model(src, tgt, real)
    for i, (s, t) in enumerate(lengths):
        alone = model(src[i : i + 1, :s], tgt[i : i + 1, :t])
        torch.testing.assert_close(together[i : i + 1, :t], alone, atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=80)
@given(
    kind=st.sampled_from([LanguageModel, Translator]),
    n=st.integers(2, 12),
    at=st.integers(1, 11),
    positions=POSITIONS,
    pre_norm=st.booleans(),
    max_ngram=LONGEST_NGRAM,
    seed=SEEDS,
)
def test_a_future_token_never_changes_the_past(kind, n, at, positions, pre_norm, max_ngram, seed) -> None:
    at = min(at, n - 1)
    torch.manual_seed(seed)
    model = model_of(kind, positions=positions, pre_norm=pre_norm, max_ngram=max_ngram)
    source, ids = [torch.randint(20, (2, 5))] * (kind is Translator), torch.randint(20, (2, n))
    other = ids.clone()
    other[:, at:] = (ids[:, at:] + torch.randint(1, 20, (2, n - at))) % 20
    before, after = model(*source, ids), model(*source, other)
    torch.testing.assert_close(before[:, :at], after[:, :at], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[:, at:], after[:, at:], atol=1e-5)
    torch.testing.assert_close(model(*source, ids[:, :at]), before[:, :at], atol=1e-5, rtol=1e-5)


@pytest.mark.row("5.1")
@settings(deadline=None, max_examples=80)
@given(
    kind=st.sampled_from([LanguageModel, Translator]),
    chunks=st.lists(st.integers(1, 5), min_size=1, max_size=7),
    beam=st.integers(1, 3),
    positions=POSITIONS,
    max_ngram=LONGEST_NGRAM,
    seed=SEEDS,
)
def test_cached_equals_uncached_with_any_beam(kind, chunks, beam, positions, max_ngram, seed) -> None:
    torch.manual_seed(seed)
    model = model_of(kind, positions=positions, max_ngram=max_ngram)
    ids, cache = torch.randint(20, (2 * beam, sum(chunks))), model.new_cache()
    if kind is LanguageModel:
        parts, whole = [model(part, cache=cache) for part in ids.split(chunks, dim=1)], model(ids)
    else:
        src, real = torch.randint(20, (2, 5)), torch.arange(5) < torch.tensor([5, 3])[:, None]
        memory = model.encode(src, real)
        parts = [model.decode(part, memory, real, cache) for part in ids.split(chunks, dim=1)]
        whole = model(src.repeat_interleave(beam, 0), ids, real.repeat_interleave(beam, 0))
    assert cache.length == ids.shape[1]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


@for_each("max_ngram", [0, 4])
def test_a_row_may_change_places_in_the_cache(max_ngram: int) -> None:
    """And be doubled: two rows that were one differ from there on."""
    model, rows = model_of(LanguageModel, max_ngram=max_ngram), torch.tensor([2, 0, 2])
    ids = torch.randint(20, (3, 6))
    cache = model.new_cache()
    model(ids[:, :4], cache=cache)
    cache.select(rows)
    whole = torch.cat([ids[rows][:, :4], torch.randint(20, (3, 2))], dim=1)
    got = model(whole[:, 4:], cache=cache)
    torch.testing.assert_close(got, model(whole)[:, 4:], atol=1e-5, rtol=1e-5)


def test_sentences_leave_and_hypotheses_change_places() -> None:
    model = model_of(Translator)
    src, real = torch.randint(20, (3, 5)), torch.arange(5) < torch.tensor([5, 3, 4])[:, None]
    tgt = torch.randint(20, (6, 4))  # a beam of two
    memory, cache = model.encode(src, real), model.new_cache()
    model.decode(tgt[:, :3], memory, real, cache)
    sentences, rows = torch.tensor([2, 0]), torch.tensor([5, 5, 1, 0])
    cache.select(rows, sentences)
    got = model.decode(tgt[rows][:, 3:], memory[sentences], real[sentences], cache)
    repeated = sentences.repeat_interleave(2)
    whole = model(src[repeated], tgt[rows], real[repeated])
    torch.testing.assert_close(got, whole[:, 3:], atol=1e-5, rtol=1e-5)


def test_every_source_token_may_change_every_logit() -> None:
    model, src, tgt = model_of(Translator), torch.randint(20, (1, 6)), torch.randint(20, (1, 4))
    others = (src.repeat(6, 1) + torch.eye(6, dtype=torch.long)) % 20
    assert ((model(others, tgt.repeat(6, 1)) - model(src, tgt)).abs().amax(-1) > 1e-6).all()


def test_the_output_bias_is_added_to_each_logit() -> None:
    model, ids = model_of(Translator, output_bias=True), torch.tensor([[1, 2, 3]])
    before = model(ids, ids)
    with torch.no_grad():
        model.output_bias += torch.arange(20.0)
    torch.testing.assert_close(model(ids, ids), before + torch.arange(20.0))


@for_each("kind", [Translator, LanguageModel, TextClassifier, MaskedLanguageModel])
def test_a_copy_is_near_the_model_and_leaves_it_alone(kind: Any) -> None:
    torch.manual_seed(0)
    model, ids = model_of(kind, d_model=32, d_ff=64), torch.randint(3, 20, (4, 9))
    inputs, before = (ids, ids) if kind is Translator else (ids,), deepcopy(model.state_dict())
    with torch.inference_mode():
        expected, found = model(*inputs), cast_for_inference(model, "bf16")(*inputs)
        assert torch.equal(model(*inputs), expected) and not torch.equal(found, expected)
    assert found.dtype == torch.float32 and (found - expected).norm() < 0.05 * expected.norm()
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert cast_for_inference(model, "fp32") is model


@pytest.mark.parametrize("native", [True, False])
def test_bf16_gives_the_bits_of_the_plain_product_and_a_row_the_same_in_every_batch(
    monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """Without kernels for bf16 those of the product of the rounded numbers in fp64."""
    if not native:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    torch.manual_seed(0)
    layer, x = Bf16Linear(torch.randn(48, 64), torch.randn(48)), torch.randn(37, 64)
    together, dtype = layer(x), layer.weight.dtype
    assert dtype == torch.float64 or (native and dtype == torch.bfloat16)
    plain = F.linear(x.bfloat16().to(dtype), layer.weight, layer.bias)
    assert torch.equal(together, plain.bfloat16().float())
    for n in (1, 2, 16, 33):
        assert torch.equal(layer(x[:n]), together[:n])


def n_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def classifier(config: ModelConfig) -> TextClassifier:
    torch.manual_seed(0)
    return TextClassifier(config, 20, 3, 12)


CHANGES = {
    "n_layers": 3,
    "d_model": 16,
    "n_heads": 4,
    "d_head": 3,
    "d_ff": 5,
    "dropout": 0.5,
    "embedding_dropout": 0.5,
    "norm": "rms",
    "pre_norm": False,
    "activation": "gelu",
    "positions": "learned",
    "bias": False,
    "pooling": "max",
    "embedding_init_std": 0.05,
    "embedding_norm": True,
    "norm_eps": 0.1,
    "n_segments": 2,
    "pooler": "tanh",
}


def test_every_field_of_the_configuration_is_tried() -> None:
    elsewhere = {"tie_embeddings", "ensemble_size", "max_ngram", "ngram_dropout", "rope_base", "output_bias"}
    assert {f.name for f in fields(ModelConfig)} == CHANGES.keys() | elsewhere


@for_each("name", CHANGES)
def test_no_field_is_silently_ignored(name: str) -> None:
    ids = torch.tensor([[3, 4, 5, 6]])
    before, after = classifier(SMALL), classifier(replace(SMALL, **{name: CHANGES[name]}))
    torch.manual_seed(1)
    out = before(ids)
    torch.manual_seed(1)
    assert not torch.equal(out, after(ids))


CHOICES = {
    "positions": ["sinusoidal", "learned", "rotary", "none"],
    "norm": ["layer", "rms"],
    "activation": ["relu", "gelu", "gelu-tanh", "silu", "swiglu"],
    "pre_norm": [True, False],
    "d_head": [None, 2, 16],
}


def test_every_combination_learns() -> None:
    for chosen in itertools.product(*CHOICES.values()):
        parts = dict(zip(CHOICES, chosen, strict=True))
        model = classifier(replace(SMALL, n_layers=1, **parts))
        model(torch.tensor([[3, 4, 5, 6], [6, 5, 4, 3]])).log_softmax(-1)[:, 1].sum().backward()
        dead = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        assert dead == [], parts


@pytest.mark.row("3.5", "3.7")
def test_the_papers_sizes() -> None:
    """Table 3 rounds to 65 and 213 million; with its 37,000 shared tokens the exact counts are these."""
    for config, d, n_heads, rounded in ((BASE, 512, 8, 65e6), (BIG, 1024, 16, 213e6)):
        with torch.device("meta"):
            model = Translator(config, 37_000, 1024)
        attention, feed_forward, norm = 4 * (d * d + d), 8 * d * d + 5 * d, 2 * d
        encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
        assert n_parameters(model) == 6 * (encoder + decoder) + 37_000 * d == pytest.approx(rounded, rel=0.04)
        part = model.encoder.layers[0].self_attention
        assert (part.n_heads, part.d_head) == (n_heads, 64)
        assert not model.encoder.layers[0].self_residual.pre_norm
        assert len(model.encoder.layers) == len(model.decoder.layers) == 6


def test_tied_embeddings_are_one_matrix() -> None:
    tied = Translator(SMALL, 20, 12)
    assert tied.src_embedding.weight is tied.tgt_embedding.weight
    untied = Translator(replace(SMALL, tie_embeddings=False), 20, 12)
    assert untied.src_embedding.weight is not untied.tgt_embedding.weight
    assert n_parameters(untied) == n_parameters(tied) + 2 * 20 * 8
    lm = LanguageModel(SMALL, 20, 12)
    assert n_parameters(LanguageModel(replace(SMALL, tie_embeddings=False), 20, 12)) == n_parameters(lm) + 20 * 8


def test_n_grams_have_so_many_rows_a_length() -> None:
    plain, chosen = LanguageModel(SMALL, 20, 12), replace(SMALL, max_ngram=4)
    assert n_parameters(LanguageModel(chosen, 20, 12)) == n_parameters(plain) + (1 + 3 * 16_384) * 8
    left_out = LanguageModel(replace(chosen, ngram_dropout=0.25), 20, 12).ngrams
    assert left_out is not None and left_out.dropout.p == 0.25
    assert n_parameters(LanguageModel(replace(SMALL, max_ngram=1), 20, 12)) == n_parameters(plain)


def branch_end_sizes(layers: nn.ModuleList) -> list[float]:
    """How large the weights of the projections that end a residual branch are, over Xavier's bound."""
    ends = [p for name, p in layers.named_parameters() if name.endswith(("o_proj.weight", "down_proj.weight"))]
    return [float(p.detach().abs().max()) / (6 / sum(p.shape)) ** 0.5 for p in ends]


def test_each_stack_is_initialised_by_its_own_depth() -> None:
    """The sum that a stack's branches add up to is as long as the stack, and not as another one."""
    config, scale = replace(SMALL, d_model=64, n_layers=8), (2 * 8) ** -0.5
    translator = Translator(config, 20, 12)
    assert branch_end_sizes(translator.encoder.layers) == pytest.approx([scale] * 16, rel=0.02)
    assert branch_end_sizes(translator.decoder.layers) == pytest.approx([scale] * 24, rel=0.02)
    model = LanguageModel(config, 20, 12)
    assert branch_end_sizes(model.decoder.layers) == pytest.approx([scale] * 16, rel=0.02)


@pytest.mark.row("5.2")
def test_why_pre_norm_trains_more_stably() -> None:
    """At the start of a deep post-norm stack the gradient that reaches the first layer has shrunk against the last
    layer's; in a pre-norm stack it has not (Xiong et al. 2020).
    """
    shares = {True: 1.0, False: 1.0}
    for seed, pre_norm in itertools.product(range(5), shares):
        torch.manual_seed(seed)
        config = ModelConfig(n_layers=12, d_model=32, n_heads=2, dropout=0.0, pre_norm=pre_norm)
        model = TextClassifier(config, 50, 3, 9)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)  # as the paper's authors, with no care for depth
        model(torch.randint(50, (64, 9))).log_softmax(-1)[:, 0].mean().backward()
        first, *_, last = (layer.feed_forward.up_proj.weight.grad.norm() for layer in model.encoder.layers)
        shares[pre_norm] *= (first / last).item() ** (1 / 5)
    assert shares[True] > 1 > shares[False] and shares[True] > 2 * shares[False]

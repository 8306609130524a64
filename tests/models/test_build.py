"""From numbers to parts: every choice of `ModelConfig` changes the model, and no choice is ignored."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest
import torch
from tests.helpers.for_each import for_each
from torch import nn

from glassformer.config import ModelConfig
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.models.decoder_models import BASE, BIG

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.0)


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


@for_each("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_order_matters_with_positions_and_not_without(positions: str) -> None:
    model = classifier(replace(SMALL, positions=positions))
    one, other = model(torch.tensor([[3, 4, 5, 6]])), model(torch.tensor([[5, 3, 6, 4]]))
    assert torch.allclose(one, other, atol=1e-4) == (positions == "none")


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

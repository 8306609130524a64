"""Norms, feed-forward blocks, layers and stacks of them against torch with copied weights, pre- and post-norm; dropout.

`test_operations.py` holds every activation against torch, and `test_trace.py` and `test_learning.py` those of models
against that.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.copying import copy_layer, randomise
from tests.helpers.for_each import for_each
from torch import nn

from glassformer.config import ModelConfig
from glassformer.models import TextClassifier
from glassformer.nn.attention import Mask, MultiHeadAttention
from glassformer.nn.dropout import Dropout
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual, RMSNorm, Stack, activate

D, H, F = 12, 3, 20
CAUSAL = Mask.of(causal=(5, 5))


REAL = torch.arange(6) < torch.tensor([6, 4])[:, None]


def layer(pre_norm: bool, activation: Any, cross: bool) -> Layer:
    first, second, last = (Residual(LayerNorm(D), 0.0, pre_norm) for _ in range(3))
    return Layer(
        MultiHeadAttention(D, H),
        FeedForward(D, F, activation),
        self_residual=first,
        feed_forward_residual=last,
        cross_attention=MultiHeadAttention(D, H) if cross else None,
        cross_residual=second if cross else None,
    )


@pytest.mark.row("1.3", "3.6", "4.3", "5.6")
@for_each("pre_norm", [True, False])
@for_each("activation", ["relu", "gelu"])
@for_each("padded", [True, False])
def test_encoder_and_decoder_equal_torch(pre_norm: bool, activation: str, padded: bool) -> None:
    """Stacks of two layers; only those of pre-norm end in a norm."""
    options: Any = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": pre_norm}
    norms = [nn.LayerNorm(D) if pre_norm else None for _ in range(2)]
    first, second = nn.TransformerEncoderLayer(D, H, F, **options), nn.TransformerDecoderLayer(D, H, F, **options)
    encoder = randomise(nn.TransformerEncoder(first, 2, norms[0], enable_nested_tensor=False))
    decoder = randomise(nn.TransformerDecoder(second, 2, norms[1]))
    ours = []
    for theirs, cross in ((encoder, False), (decoder, True)):
        layers = [layer(pre_norm, activation, cross) for _ in range(2)]
        ours.append(Stack(layers, LayerNorm(D) if pre_norm else None))
        for one, other in zip(layers, theirs.layers, strict=True):
            copy_layer(one, other)
        if pre_norm:
            ours[-1].norm.load_state_dict(theirs.norm.state_dict())
    x, y = torch.randn(2, 6, D), torch.randn(2, 5, D)
    hidden, mask = (~REAL, Mask.of(padding_mask=REAL)) if padded else (None, None)
    memory, expected = ours[0](x, mask), encoder(x, src_key_padding_mask=hidden)
    real = REAL if padded else torch.ones_like(REAL)  # torch's fast path zeroes what comes out at padding
    torch.testing.assert_close(memory[real], expected[real], atol=1e-5, rtol=1e-5)
    past = torch.ones(5, 5, dtype=torch.bool).tril()
    written = decoder(y, memory, tgt_mask=~past, memory_key_padding_mask=hidden)
    torch.testing.assert_close(ours[1](y, CAUSAL, memory=memory, memory_mask=mask), written, atol=1e-5, rtol=1e-5)


@for_each("pre_norm", [True, False])
def test_residual_drops_out_the_sublayer_alone(pre_norm: bool) -> None:
    x = torch.randn(1, 4, D)
    half = Residual(nn.Identity(), 0.5, pre_norm)
    added = half(x, lambda y: torch.full_like(y, 3.0)) - x
    assert set(added.flatten().round(decimals=3).tolist()) == {0.0, 6.0}
    half.eval()
    torch.testing.assert_close(half(x, lambda y: torch.full_like(y, 3.0)) - x, torch.full_like(x, 3.0))


@pytest.mark.row("1c")
@for_each("d_model", [4, 24])
def test_the_block_of_a_model_is_four_times_as_wide_as_the_model(d_model: int) -> None:
    """One of the sources writes 4·4, which is right at its own width of 4 alone."""
    model = TextClassifier(ModelConfig(n_layers=1, d_model=d_model, n_heads=2), 10, 2, 5)
    block = model.encoder.layers[0].feed_forward
    assert block.up_proj.out_features == block.down_proj.in_features == 4 * d_model


@pytest.mark.row("3a")
@for_each("name", ["mish", "swiglu", nn.ReLU, nn.functional.relu])
def test_an_activation_that_is_missing_is_said_and_not_replaced(name: object) -> None:
    with pytest.raises(ValueError, match=r"no activation .* `activate` in nn/layers.py has no case"):
        activate(name, torch.zeros(3))


@pytest.mark.row("3.3", "3d")
@for_each(("kind", "other"), [(LayerNorm, nn.LayerNorm(6)), (RMSNorm, nn.RMSNorm(6, eps=1e-6))])
def test_a_norm_is_that_of_torch(kind: type[LayerNorm | RMSNorm], other: nn.Module) -> None:
    """Of each token, over its features."""
    theirs, ours = randomise(other), kind(6)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6) * 5 + 2
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x[1:, 1:2]), ours(x)[1:, 1:2])


@for_each("kind", [LayerNorm, RMSNorm])
def test_a_token_of_zeros_is_finite_forward_and_backward(kind: type[LayerNorm | RMSNorm]) -> None:
    x = torch.zeros(1, 1, 6, requires_grad=True)
    kind(6)(x).sum().backward()
    assert x.grad.isfinite().all()


def test_rms_norm_of_bf16_is_summed_in_fp32() -> None:
    x = torch.full((1, 1, 4096), 3.0, dtype=torch.bfloat16)
    out = RMSNorm(4096)(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), torch.ones(1, 1, 4096), atol=1e-2, rtol=0)


def dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    return Dropout(p)(x)


@for_each("p", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_the_share_dropped_and_the_mean_kept(p: float) -> None:
    out = dropout(torch.ones(1000, 1001), p)
    share = (out == 0).float().mean().item()
    assert share == pytest.approx(max(p, 1 / 256), abs=1 / 256)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert len(out.unique()) == 2


def test_neighbours_are_dropped_independently() -> None:
    kept = (dropout(torch.ones(1_000_000), 0.5) != 0).float()
    for lag in (1, 2, 7, 8, 64):
        together = (kept[:-lag] * kept[lag:]).mean().item()
        assert together == pytest.approx(0.25, abs=0.005)


def test_the_gradient_passes_where_the_value_did() -> None:
    x = torch.ones(100, requires_grad=True)
    out = dropout(x, 0.5)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_the_seed_decides() -> None:
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(dropout(torch.ones(100), 0.5))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_shape_and_dtype_stay_and_nothing_to_drop_is_the_very_tensor() -> None:
    for x in (torch.ones(0, 3), torch.ones(3, 1, 5), torch.ones(9, dtype=torch.bfloat16)):
        assert (dropout(x, 0.5).shape, dropout(x, 0.5).dtype) == (x.shape, x.dtype)
        assert dropout(x, 0.0) is x and Dropout(0.9).eval()(x) is x


def test_a_share_that_is_none_is_refused() -> None:
    for p in (-0.1, 1.0, 2.0):
        with pytest.raises(ValueError, match="dropout"):
            Dropout(p)

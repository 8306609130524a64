"""Norms, feed-forward blocks, layers and stacks of them against torch with copied weights, pre- and post-norm.

`test_operations.py` holds every activation against torch, and `test_trace.py` and `test_backward.py` those of models
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
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual, RMSNorm, Stack, activate

D, H, F = 12, 3, 20
CAUSAL = Mask.of(causal=(5, 5))


def residual(pre_norm: bool) -> Residual:
    return Residual(LayerNorm(D), 0.0, pre_norm)


REAL = torch.arange(6) < torch.tensor([6, 4])[:, None]


def layer(pre_norm: bool, activation: str = "relu", cross: bool = False) -> Layer:
    return Layer(
        MultiHeadAttention(D, H),
        FeedForward(D, F, activation),
        self_residual=residual(pre_norm),
        feed_forward_residual=residual(pre_norm),
        cross_attention=MultiHeadAttention(D, H) if cross else None,
        cross_residual=residual(pre_norm) if cross else None,
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

"""Tests of the layers and stacks against torch with copied weights, pre- and post-norm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.copying import copy, copy_decoder_layer, copy_encoder_layer, randomise
from tests.helpers.for_each import for_each
from torch import nn

from glassformer.nn.attention import Mask, MultiHeadAttention
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual, Stack

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
    for theirs, cross, copy_layer in ((encoder, False, copy_encoder_layer), (decoder, True, copy_decoder_layer)):
        layers = [layer(pre_norm, activation, cross) for _ in range(2)]
        ours.append(Stack(layers, LayerNorm(D) if pre_norm else None))
        for one, other in zip(layers, theirs.layers, strict=True):
            copy_layer(one, other)
        if pre_norm:
            copy(ours[-1].norm, theirs.norm)
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

"""Tests of the layers and stacks against torch with copied weights, pre- and post-norm."""

from __future__ import annotations

import torch
from tests.helpers.copying import copy, copy_decoder_layer, copy_encoder_layer, randomise
from tests.helpers.for_each import for_each
from torch import nn

from glassformer.nn.attention import DecoderCache, Mask, MultiHeadAttention
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual, Stack

D, H, F = 12, 3, 20
REAL = torch.arange(6) < torch.tensor([6, 4])[:, None]
PAST = torch.ones(5, 5, dtype=torch.bool).tril()
CAUSAL = Mask.of(causal=(5, 5))


def residual(pre_norm: bool) -> Residual:
    return Residual(LayerNorm(D), 0.0, pre_norm)


def layer(pre_norm: bool, activation: str = "relu", cross: bool = False) -> Layer:
    return Layer(
        MultiHeadAttention(D, H),
        FeedForward(D, F, activation),
        self_residual=residual(pre_norm),
        feed_forward_residual=residual(pre_norm),
        cross_attention=MultiHeadAttention(D, H) if cross else None,
        cross_residual=residual(pre_norm) if cross else None,
    )


def decoder_layer(pre_norm: bool, activation: str = "relu") -> Layer:
    return layer(pre_norm, activation, cross=True)


@for_each("pre_norm", [True, False])
@for_each("activation", ["relu", "gelu"])
@for_each("padded", [True, False])
def test_encoder_layer_equals_torch(pre_norm: bool, activation: str, padded: bool) -> None:
    theirs = nn.TransformerEncoderLayer(D, H, F, 0.0, activation, batch_first=True, norm_first=pre_norm)
    ours = layer(pre_norm, activation)
    copy_encoder_layer(ours, randomise(theirs))
    x = torch.randn(2, 6, D)
    expected = theirs(x, src_key_padding_mask=~REAL if padded else None)
    output = ours(x, Mask.of(padding_mask=REAL) if padded else None)
    if padded:  # torch's fast path zeroes what comes out at padding; nobody reads it
        expected, output = expected[REAL], output[REAL]
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


@for_each("pre_norm", [True, False])
@for_each("activation", ["relu", "gelu"])
@for_each("padded", [True, False])
def test_decoder_layer_equals_torch(pre_norm: bool, activation: str, padded: bool) -> None:
    theirs = nn.TransformerDecoderLayer(D, H, F, 0.0, activation, batch_first=True, norm_first=pre_norm)
    ours = decoder_layer(pre_norm, activation)
    copy_decoder_layer(ours, randomise(theirs))
    x, memory = torch.randn(2, 5, D), torch.randn(2, 6, D)
    expected = theirs(x, memory, tgt_mask=~PAST, memory_key_padding_mask=~REAL if padded else None)
    output = ours(x, CAUSAL, memory=memory, memory_mask=Mask.of(padding_mask=REAL) if padded else None)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


@for_each("pre_norm", [True, False])
def test_encoder_and_decoder_equal_torch(pre_norm: bool) -> None:
    n = 3
    other_encoder = nn.TransformerEncoderLayer(D, H, F, 0.0, batch_first=True, norm_first=pre_norm)
    other = nn.TransformerDecoderLayer(D, H, F, 0.0, batch_first=True, norm_first=pre_norm)
    norms = [nn.LayerNorm(D) if pre_norm else None for _ in range(2)]
    encoder = randomise(nn.TransformerEncoder(other_encoder, n, norms[0], enable_nested_tensor=False))
    decoder = randomise(nn.TransformerDecoder(other, n, norms[1]))
    our_encoder = Stack([layer(pre_norm) for _ in range(n)], LayerNorm(D) if pre_norm else None)
    our_decoder = Stack([decoder_layer(pre_norm) for _ in range(n)], LayerNorm(D) if pre_norm else None)
    for ours, theirs in zip(our_encoder.layers, encoder.layers, strict=True):
        copy_encoder_layer(ours, theirs)
    for ours, theirs in zip(our_decoder.layers, decoder.layers, strict=True):
        copy_decoder_layer(ours, theirs)
    if pre_norm:
        copy(our_encoder.norm, encoder.norm)
        copy(our_decoder.norm, decoder.norm)
    x, y = torch.randn(2, 6, D), torch.randn(2, 5, D)
    memory = our_encoder(x)
    torch.testing.assert_close(memory, encoder(x), atol=1e-5, rtol=1e-5)
    output = our_decoder(y, CAUSAL, memory=memory)
    torch.testing.assert_close(output, decoder(y, memory, tgt_mask=~PAST), atol=1e-5, rtol=1e-5)


@for_each("pre_norm", [True, False])
def test_residual_drops_out_the_sublayer_alone(pre_norm: bool) -> None:
    x = torch.randn(1, 4, D)
    half = Residual(nn.Identity(), 0.5, pre_norm)
    added = half(x, lambda y: torch.full_like(y, 3.0)) - x
    assert set(added.flatten().round(decimals=3).tolist()) == {0.0, 6.0}
    half.eval()
    torch.testing.assert_close(half(x, lambda y: torch.full_like(y, 3.0)) - x, torch.full_like(x, 3.0))


@for_each("cached", [True, False])
def test_decoder_shares_a_sentences_memory_in_its_beam(cached: bool) -> None:
    """Rows of a sentence, adjacent, attend to that sentence's memory as if it were repeated for each."""
    beam, n = 3, 2
    decoder = Stack([decoder_layer(pre_norm=True) for _ in range(2)], LayerNorm(D)).eval()
    memory, x = torch.randn(n, 6, D), torch.randn(n * beam, 4, D)
    causal, mask = Mask.of(causal=(4, 4)), Mask.of(padding_mask=REAL)
    for_each = Mask.of(padding_mask=REAL.repeat_interleave(beam, 0))
    repeated = decoder(x, causal, memory=memory.repeat_interleave(beam, 0), memory_mask=for_each)
    if cached:
        cache = DecoderCache(2)
        steps = [decoder(x[:, t : t + 1], cache=cache, memory=memory, memory_mask=mask) for t in range(4)]
        shared = torch.cat(steps, dim=1)
    else:
        shared = decoder(x, causal, memory=memory, memory_mask=mask)
    torch.testing.assert_close(shared, repeated, atol=1e-5, rtol=1e-5)

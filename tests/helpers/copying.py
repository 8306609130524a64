"""Weights of torch's own layers, copied into ours, name by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.layers import Layer


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every trained parameter, biases and norms included, values large enough that a mistake shows."""
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue  # fixed, as Marian's sinusoids are
        noise = torch.randn(parameter.shape, generator=rng)
        is_norm = "norm" in name.lower() or "ln_" in name
        parameter.copy_(1 + 0.3 * noise if is_norm and name.endswith("weight") else 0.3 * noise)
    return model.eval()


@torch.no_grad()
def copy(ours: nn.Module, theirs: nn.Module) -> None:
    """A linear layer or a norm."""
    assert isinstance(theirs.weight, Tensor)
    ours.get_parameter("weight").copy_(theirs.weight)
    if isinstance(theirs.bias, Tensor):
        ours.get_parameter("bias").copy_(theirs.bias)


@torch.no_grad()
def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Torch keeps the projections of queries, keys and values as one matrix (3D, D)."""
    for linear, w in zip((ours.q_proj, ours.k_proj, ours.v_proj), theirs.in_proj_weight.chunk(3), strict=True):
        linear.weight.copy_(w)
    if theirs.in_proj_bias is not None:
        for linear, b in zip((ours.q_proj, ours.k_proj, ours.v_proj), theirs.in_proj_bias.chunk(3), strict=True):
            linear.bias.copy_(b)
    copy(ours.o_proj, theirs.out_proj)


def copy_encoder_layer(ours: Layer, theirs: nn.TransformerEncoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy(ours.feed_forward.up_proj, theirs.linear1)
    copy(ours.feed_forward.down_proj, theirs.linear2)
    copy(ours.self_residual.norm, theirs.norm1)
    copy(ours.feed_forward_residual.norm, theirs.norm2)


def copy_decoder_layer(ours: Layer, theirs: nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy(ours.feed_forward.up_proj, theirs.linear1)
    copy(ours.feed_forward.down_proj, theirs.linear2)
    copy(ours.self_residual.norm, theirs.norm1)
    copy(ours.cross_residual.norm, theirs.norm2)
    copy(ours.feed_forward_residual.norm, theirs.norm3)

"""Weights of torch's own layers, copied into ours, name by name."""

from __future__ import annotations

import torch
from torch import nn

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


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Torch keeps the projections of queries, keys and values as one matrix (3D, D)."""
    parts = zip(theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for linear, (weight, bias) in zip((ours.q_proj, ours.k_proj, ours.v_proj), parts, strict=True):
        linear.load_state_dict({"weight": weight, "bias": bias})
    ours.o_proj.load_state_dict(theirs.out_proj.state_dict())


def copy_layer(ours: Layer, theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> None:
    """A layer of a decoder has attention to its memory, and a norm there, between the others."""
    residuals = [ours.self_residual, ours.feed_forward_residual]
    copy_attention(ours.self_attention, theirs.self_attn)
    if isinstance(theirs, nn.TransformerDecoderLayer):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        residuals.insert(1, ours.cross_residual)
    ours.feed_forward.up_proj.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down_proj.load_state_dict(theirs.linear2.state_dict())
    for i, residual in enumerate(residuals, start=1):
        residual.norm.load_state_dict(getattr(theirs, f"norm{i}").state_dict())

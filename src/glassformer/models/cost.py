"""What a forward pass costs: FLOPs a real token, two a multiply–add, matrix products only."""

from __future__ import annotations

from glassformer.config import ModelConfig
from glassformer.models.build import d_ff_of, d_head_of


def encoder_flops(c: ModelConfig, length: float) -> float:
    """Return the FLOPs of the encoder, for texts of `length` tokens."""
    return c.n_layers * (_attention_flops(c, length) + _feed_forward_flops(c))


def decoder_flops(c: ModelConfig, length: float, vocab_size: int, cross: bool) -> float:
    """Return the FLOPs of the decoder with its output projection; causal attention sees half of the keys on average."""
    layer = _attention_flops(c, length / 2) + _feed_forward_flops(c) + (_attention_flops(c, length) if cross else 0)
    return c.n_layers * layer + 2 * c.d_model * vocab_size


def _attention_flops(c: ModelConfig, n_keys: float) -> float:
    """Return the FLOPs of four projections, then scores and weighted sum over `n_keys`."""
    width = c.n_heads * d_head_of(c)
    return 8 * c.d_model * width + 4 * n_keys * width


def _feed_forward_flops(c: ModelConfig) -> float:
    return (6 if c.activation == "swiglu" else 4) * c.d_model * d_ff_of(c)

"""The paper in a few hundred lines: attention, positions, norms, feed-forward, layers. Imports torch only.

No name here hides a module: the function `attention` is `glassformer.attention`, or in `nn/attention.py`.
"""

from glassformer.nn.attention import Mask, MultiHeadAttention, causal_mask, fused_attention
from glassformer.nn.cache import DecoderCache, KVCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.embeddings import LearnedPositions, Rotation, SinusoidalPositions, TokenEmbedding, sinusoidal
from glassformer.nn.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    Residual,
    RMSNorm,
    SwiGLU,
)

__all__ = [
    "Decoder",
    "DecoderCache",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "Mask",
    "MultiHeadAttention",
    "RMSNorm",
    "Residual",
    "Rotation",
    "SinusoidalPositions",
    "SwiGLU",
    "TokenEmbedding",
    "causal_mask",
    "fused_attention",
    "sinusoidal",
]

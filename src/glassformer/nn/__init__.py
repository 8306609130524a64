"""The paper in a few hundred lines: attention, positions, norms, feed-forward, layers. Imports torch only.

Letters of shapes: B texts of a batch, R rows of a decoder (B times the width of a beam), L, S, T positions of a text, a
source, a target, Q queries, K keys, D width of the model, H heads, E width of a head, F of a feed-forward block, V
tokens of the vocabulary, U distinct tokens of a batch, G n-grams of a token. Tests check them at every call.

The function `attention` is not imported here, since a module has that name: it is `glassformer.attention`.
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

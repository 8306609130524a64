"""The paper in a few hundred lines: attention, positions, norms, feed-forward, layers. Imports torch only.

No name here hides a module: the function `attention` is `glassformer.attention`, or in `nn/attention.py`.
"""

from glassformer.nn.attention import MultiHeadAttention, fused_attention
from glassformer.nn.cache import DecoderCache, KVCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU
from glassformer.nn.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, Residual
from glassformer.nn.masks import Mask, causal_mask
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import LearnedPositions, Rotation, SinusoidalPositions, sinusoidal

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

"""The paper in a few hundred lines: attention, positions, norms, feed-forward, layers. Imports torch only."""

from glassformer.nn.attention import CAUSAL, MultiHeadAttention, attention, fused_attention, observe_attention
from glassformer.nn.cache import DecoderCache, KVCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU
from glassformer.nn.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, Residual
from glassformer.nn.masks import causal_mask, padding_to_attention_mask
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import LearnedPositions, Rotation, SinusoidalPositions, sinusoidal

__all__ = [
    "CAUSAL", "Decoder", "DecoderCache", "DecoderLayer", "Dropout", "Encoder", "EncoderLayer", "FeedForward",
    "KVCache", "LayerNorm", "LearnedPositions", "MultiHeadAttention", "RMSNorm", "Residual", "Rotation",
    "SinusoidalPositions", "SwiGLU", "TokenEmbedding", "attention", "causal_mask", "fused_attention",
    "observe_attention", "padding_to_attention_mask", "sinusoidal",
]  # fmt: skip

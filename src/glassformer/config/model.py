"""The sizes and choices of a Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import number


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer. The paper is Vaswani et al. 2017, "Attention Is All You Need"."""

    n_layers: int = number(4, "[1, 1000]")
    """Layers of the encoder (and of the decoder), the paper's N."""
    d_model: int = number(256, "[1, 65536]")
    """Width of the residual stream."""
    n_heads: int = number(4, "[1, 1024]")
    """Attention heads."""
    d_head: int | None = number(None, "[1, 65536]")
    """Width of a head; d_model / n_heads when absent. Narrow and wide heads are allowed."""
    d_ff: int | None = number(None, "[1, 1000000]")
    """Inner width of the feed-forward block; 4 · d_model when absent."""
    embedding_init_std: float | None = number(None, "(0, inf)")
    """Standard deviation that embeddings start with, positions scaled alike; the paper's 1 where absent."""
    ensemble_size: int = number(1, "[1, 100]")
    """Models trained side by side from different starts, whose probabilities are averaged (an ensemble)."""
    dropout: float = number(0.1, "[0, 1)")
    """Dropout on embeddings and on every sublayer's output."""
    embedding_dropout: float | None = number(None, "[0, 1)")
    """Dropout on embeddings alone, where it differs from `dropout`."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper's) or RMSNorm."""
    pre_norm: bool = True
    """Norm before each sublayer (trains more stably) or after the residual (the paper's)."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Feed-forward activation; ReLU is the paper's."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """How positions are told apart; sinusoidal is the paper's."""
    bias: bool = True
    """Biases in linear layers."""
    tie_embeddings: bool = True
    """Share input and output embeddings (source too when translating with one vocabulary)."""
    pooling: Literal["mean", "max", "mean+max", "first"] = "mean"
    """Classifier: how token vectors become one, padding excluded."""
    max_ngram: int = number(0, "[0, 16]")
    """Language model: n-grams of 2 to so many tokens have vectors, added to that of the token they end with; 0: none."""
    ngram_dropout: float = number(0.5, "[0, 1)")
    """Share of those n-grams that are left out while training: rare ones would be learned by heart."""

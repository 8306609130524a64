"""Settings of the architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import number


@dataclass(frozen=True)
class ModelConfig:
    """Architecture of the Transformer. The paper is Vaswani et al. 2017, "Attention Is All You Need"."""

    n_layers: int = number(4, "[1, 1000]")
    """Number of layers, of the encoder and of the decoder; the paper's N."""
    d_model: int = number(256, "[1, 65536]")
    """Width of the residual stream."""
    n_heads: int = number(4, "[1, 1024]")
    """Number of attention heads."""
    d_head: int | None = number(None, "[1, 65536]")
    """Width of a head; without it, d_model / n_heads."""
    d_ff: int | None = number(None, "[1, 1000000]")
    """Inner width of the feed-forward block; without it, 4 · d_model."""
    embedding_init_std: float | None = number(None, "(0, inf)")
    """Initial standard deviation of embeddings, positions scaled alike; without it, the paper's 1."""
    ensemble_size: int = number(1, "[1, 100]")
    """Number of models trained together from different initial weights; their probabilities are averaged."""
    dropout: float = number(0.1, "[0, 1)")
    """Dropout probability on embeddings and on the output of every sublayer."""
    embedding_dropout: float | None = number(None, "[0, 1)")
    """Dropout probability on embeddings; without it, the same as `dropout`."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper's) or RMSNorm."""
    pre_norm: bool = True
    """Norm before each sublayer, which trains more stably, instead of after the residual (the paper's)."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Activation of the feed-forward block; ReLU is the paper's."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """Positional encoding; sinusoidal is the paper's."""
    bias: bool = True
    """Biases in linear layers."""
    tie_embeddings: bool = True
    """Share the weights of input embedding and output projection (of the source embedding too if translating)."""
    pooling: Literal["mean", "max", "mean+max", "first"] = "mean"
    """Pooling of token vectors into one per text (classifier), padding excluded."""
    max_ngram: int = number(0, "[0, 16]")
    """Length of the longest token n-grams whose embeddings are added to that of their last token (language model)."""
    ngram_dropout: float = number(0.5, "[0, 1)")
    """Probability of dropping such an n-gram in training, since rare ones would be memorised."""

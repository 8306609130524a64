"""`TextClassifier`: an encoder whose token vectors are pooled into one and classified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models.build import initialise
from glassformer.models.text_encoder import TextEncoder
from glassformer.nn.ngram_embeddings import NgramBatch

Pooling = Literal["mean", "max", "mean+max", "first"]


def pool(x: Float[Tensor, "B S D"], padding_mask: Bool[Tensor, "B S"] | None, method: Pooling) -> Float[Tensor, "B P"]:
    """Pool token vectors (B, S, D) into one vector per text, (B, D), or (B, 2D) for "mean+max".

    Padding is excluded. A text without a real token gives zeros.
    """
    if method == "first":
        return x[:, 0] if padding_mask is None else x[:, 0] * padding_mask[:, :1]
    if padding_mask is None:
        mean, peak = x.mean(dim=1), x.amax(dim=1)
    else:
        real = padding_mask[:, :, None]  # (B, S, 1)
        n_real = real.sum(dim=1)  # (B, 1)
        mean = (x * real).sum(dim=1) / n_real.clamp(min=1)
        peak = x.masked_fill(~real, torch.finfo(x.dtype).min).amax(dim=1) * (n_real > 0)
    match method:
        case "mean":
            return mean
        case "max":
            return peak
        case "mean+max":
            return torch.cat([mean, peak], dim=-1)


class TextClassifier(TextEncoder):
    """Text encoder, pooling, one linear layer.

    Two classes share one logit: the other is fixed at zero, so that softmax is the sigmoid of that logit and
    cross-entropy is binary cross-entropy.

    Args:
        config: sizes and choices of the Transformer.
        vocab_size: rows of the token embedding.
        n_classes: number of classes C ≥ 2.
        max_len: maximum length of a text, in tokens.
        n_ngrams: rows of the table of character n-grams; 0 for none.
        bigrams: pairs of ids that have an embedding.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        n_classes: int,
        max_len: int,
        n_ngrams: int = 0,
        bigrams: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(config, vocab_size, max_len, n_ngrams, bigrams)
        if n_classes < 2:
            raise ValueError(f"a classifier needs two classes or more, not {n_classes}")
        self.n_classes = n_classes
        width = config.d_model * (2 if config.pooling == "mean+max" else 1)
        self.head = nn.Linear(width, 1 if n_classes == 2 else n_classes)
        initialise(self)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        padding_mask: Bool[Tensor, "B S"] | None = None,
        ngram_batch: NgramBatch | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return logits (B, C) of texts (B, S); arguments as in `TextEncoder.encode`."""
        x = self.encode(ids, padding_mask, ngram_batch)
        logits = self.head(pool(x, padding_mask, self.config.pooling))
        if self.n_classes == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=-1)
        return logits

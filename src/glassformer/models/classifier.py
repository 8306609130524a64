"""`TextClassifier`: an encoder whose token vectors are pooled into one and classified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_embedding, make_encoder, make_rotation
from glassformer.nn.masks import Mask
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding
from glassformer.nn.positions import positions_of

Pooling = Literal["mean", "max", "mean+max", "first"]


def pool(x: Float[Tensor, "B S D"], padding_mask: Bool[Tensor, "B S"] | None, how: Pooling) -> Float[Tensor, "B P"]:
    """Pool token vectors (B, S, D) into one vector per text, (B, D), or (B, 2D) for "mean+max".

    Padding is excluded. A text without a real token gives zeros.
    """
    if how == "first":
        return x[:, 0] if padding_mask is None else x[:, 0] * padding_mask[:, :1]
    if padding_mask is None:
        mean, peak = x.mean(dim=1), x.amax(dim=1)
    else:
        real = padding_mask[:, :, None]  # (B, S, 1)
        n_real = real.sum(dim=1)  # (B, 1)
        mean = (x * real).sum(dim=1) / n_real.clamp(min=1)
        peak = x.masked_fill(~real, torch.finfo(x.dtype).min).amax(dim=1) * (n_real > 0)
    match how:
        case "mean":
            return mean
        case "max":
            return peak
        case "mean+max":
            return torch.cat([mean, peak], dim=-1)


class TextClassifier(nn.Module):
    """Embedding, encoder, pooling, one linear layer.

    Two classes share one logit: the other is pinned to zero, so that softmax is the sigmoid of that
    logit and cross-entropy is binary cross-entropy.

    Args:
        config: the Transformer's numbers.
        vocab_size: rows of the embedding.
        n_classes: number of classes C ≥ 2.
        max_len: longest text, in tokens.
        n_ngrams: rows of a table of n-grams, which tell how a word is spelled; 0 for none.
        bigrams: pairs of ids that have vectors of their own.
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
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"a classifier needs two classes or more, not {n_classes}")
        self.config, self.n_classes, self.max_len = config, n_classes, max_len
        self.embedding = make_embedding(config, vocab_size, max_len)
        d_model, std = config.d_model, config.embedding_init_std or 1.0
        self.ngrams = NgramEmbedding(n_ngrams, d_model, std) if n_ngrams else None
        self.bigrams = BigramEmbedding(bigrams, vocab_size, d_model, std) if bigrams else None
        self.encoder = make_encoder(config)
        width = config.d_model * (2 if config.pooling == "mean+max" else 1)
        self.head = nn.Linear(width, 1 if n_classes == 2 else n_classes)
        initialise(self)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        padding_mask: Bool[Tensor, "B S"] | None = None,
        spelling: NgramBatch | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return logits (B, C) of texts (B, S); padding_mask is True at real tokens, None if all are.

        Without n-grams, words have only their own embedding.
        """
        positions = positions_of(ids.shape[1], None, ids.device)
        spelled = [] if self.ngrams is None or spelling is None else [self.ngrams(spelling)]
        paired = [] if self.bigrams is None else [self.bigrams(ids)]
        x = self.embedding(ids, positions, *spelled, *paired)
        x = self.encoder(x, Mask.of(padding_mask=padding_mask), make_rotation(self.config, positions))
        logits = self.head(pool(x, padding_mask, self.config.pooling))
        if self.n_classes == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=-1)
        return logits

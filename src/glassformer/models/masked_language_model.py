"""`MaskedLanguageModel`: the encoder of a `TextClassifier`, which guesses hidden tokens instead of a class (BERT's form)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_embedding, make_encoder, make_norm, make_rotation
from glassformer.nn.masks import Mask
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding
from glassformer.nn.positions import positions_of


class MaskedLanguageModel(nn.Module):
    """Embedding, encoder, and a guess at every token: a layer, GELU and norm, then a score for each token of the
    vocabulary (Devlin et al. 2019, whose code has this head), its matrix tied to the embedding or not.

    `embedding`, `ngrams`, `bigrams` and `encoder` are named and made as in `TextClassifier`, so that their weights fit there.

    Args:
        config: the Transformer's numbers.
        vocab_size: number of tokens V.
        max_len: longest text, in tokens.
        n_ngrams, bigrams: rows of a table of n-grams, and pairs of ids, as `TextClassifier` has them.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        max_len: int,
        n_ngrams: int = 0,
        bigrams: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__()
        self.config, self.max_len = config, max_len
        self.embedding = make_embedding(config, vocab_size, max_len)
        d_model, std = config.d_model, config.embedding_init_std or 1.0
        self.ngrams = NgramEmbedding(n_ngrams, d_model, std) if n_ngrams else None
        self.bigrams = BigramEmbedding(bigrams, vocab_size, d_model, std) if bigrams else None
        self.encoder = make_encoder(config)
        self.guess = nn.Linear(config.d_model, config.d_model)
        self.guess_norm = make_norm(config)
        self.output = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        initialise(self)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        padding_mask: Bool[Tensor, "B S"] | None = None,
        spelling: NgramBatch | None = None,
        wanted: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "N V"]:
        """Return logits (N, V) of the N tokens where `wanted` is True, row by row; without it of all B · S.

        Few tokens are predicted and the vocabulary is large, so nothing is computed for the others after the encoder.
        `padding_mask` is True at real tokens, None if all are.
        """
        positions = positions_of(ids.shape[1], None, ids.device)
        spelled = [] if self.ngrams is None or spelling is None else [self.ngrams(spelling)]
        paired = [] if self.bigrams is None else [self.bigrams(ids)]
        x = self.embedding(ids, positions, *spelled, *paired)
        x = self.encoder(x, Mask.of(padding_mask=padding_mask), make_rotation(self.config, positions))
        x = x.flatten(0, 1) if wanted is None else x[wanted]  # (N, D)
        x = self.guess_norm(F.gelu(self.guess(x)))
        weight = self.embedding.weight if self.output is None else self.output.weight
        return F.linear(x, weight, self.output_bias)

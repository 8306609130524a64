"""`MaskedLanguageModel`: the text encoder of a classifier, which predicts masked tokens instead of a class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_norm
from glassformer.models.text_encoder import TextEncoder
from glassformer.nn.ngram_embeddings import NgramBatch


class MaskedLanguageModel(TextEncoder):
    """Text encoder and a head that predicts tokens: linear layer, GELU, norm, projection to the vocabulary.

    The head is BERT's (Devlin et al. 2019). The projection is tied to the embedding or not.

    Args:
        config: sizes and choices of the Transformer.
        vocab_size: number of tokens V.
        max_len: maximum length of a text, in tokens.
        n_ngrams: rows of the table of character n-grams; 0 for none.
        bigrams: pairs of ids that have an embedding.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        max_len: int,
        n_ngrams: int = 0,
        bigrams: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(config, vocab_size, max_len, n_ngrams, bigrams)
        self.mlm_transform = nn.Linear(config.d_model, config.d_model)
        self.mlm_norm = make_norm(config)
        self.output = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        initialise(self)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        padding_mask: Bool[Tensor, "B S"] | None = None,
        ngram_batch: NgramBatch | None = None,
        selected: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "*N V"]:
        """Return logits (B, S, V) of all tokens, or (N, V) of the N tokens where `selected` is True, row by row.

        Few tokens are predicted and the vocabulary is large, so the head is not computed for the others. The other
        arguments are those of `TextEncoder.encode`.
        """
        x = self.encode(ids, padding_mask, ngram_batch)
        x = x if selected is None else x[selected]  # (N, D)
        x = self.mlm_norm(F.gelu(self.mlm_transform(x)))
        weight = self.embedding.weight if self.output is None else self.output.weight
        return F.linear(x, weight, self.output_bias)

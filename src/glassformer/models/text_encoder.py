"""`TextEncoder`: the embedding and encoder that the classifier and the masked language model share."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models.build import make_embedding, make_encoder, make_rotation
from glassformer.nn.masks import Mask
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding
from glassformer.nn.positions import positions_of


class TextEncoder(nn.Module):
    """Base class of models that encode a text: token, n-gram and bigram embeddings, then an encoder.

    A subclass adds its head. Since the parameters have the same names in all of them, a classifier can be initialised
    from a masked language model.

    Args:
        config: sizes and choices of the Transformer.
        vocab_size: rows of the token embedding.
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
        super().__init__()
        self.config, self.max_len = config, max_len
        self.embedding = make_embedding(config, vocab_size, max_len)
        d_model, std = config.d_model, config.embedding_init_std or 1.0
        self.ngrams = NgramEmbedding(n_ngrams, d_model, std) if n_ngrams else None
        self.bigrams = BigramEmbedding(bigrams, vocab_size, d_model, std) if bigrams else None
        self.encoder = make_encoder(config)

    def encode(
        self, ids: Int[Tensor, "B S"], padding_mask: Bool[Tensor, "B S"] | None, ngram_batch: NgramBatch | None
    ) -> Float[Tensor, "B S D"]:
        """Return the encoder's output for texts (B, S).

        Args:
            ids: token ids.
            padding_mask: True at real tokens; None if all are.
            ngram_batch: n-grams of the tokens; without them, words have only their own embedding.
        """
        positions = positions_of(ids.shape[1], None, ids.device)
        ngrams = [] if self.ngrams is None or ngram_batch is None else [self.ngrams(ngram_batch)]
        bigrams = [] if self.bigrams is None else [self.bigrams(ids)]
        x = self.embedding(ids, positions, *ngrams, *bigrams)
        return self.encoder(x, Mask.of(padding_mask=padding_mask), make_rotation(self.config, positions))

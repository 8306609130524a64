"""`LanguageModel`: a decoder without an encoder, which predicts the next token (GPT's form)."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_embedding, make_rotation, make_stack
from glassformer.nn.attention import Mask
from glassformer.nn.cache import DecoderCache
from glassformer.nn.embeddings import positions_of
from glassformer.nn.ngram_embeddings import HashedNgramEmbedding
from glassformer.nn.steps import step


class LanguageModel(nn.Module):
    """Embedding, causal decoder, output projection (tied to the embedding or not); n-grams beside tokens where asked.

    Args:
        config: the Transformer's numbers.
        vocab_size: number of tokens V.
        max_len: the context, in tokens.
        special: ids below this one are special tokens, of which no n-gram is made.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, max_len: int, special: int = 0) -> None:
        super().__init__()
        self.config, self.max_len = config, max_len
        self.embedding = make_embedding(config, vocab_size, max_len)
        self.ngrams = None
        if config.max_ngram > 1:
            self.ngrams = HashedNgramEmbedding(config.max_ngram, config.d_model, config.ngram_dropout, special)
        self.decoder = make_stack(config)
        self.output = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        initialise(self)

    def forward(self, ids: Int[Tensor, "B T"], cache: DecoderCache | None = None) -> Float[Tensor, "B T V"]:
        """Return logits (B, T, V) of the token after each of ids (B, T); with a cache, ids are the new ones."""
        positions = positions_of(ids.shape[1], cache, ids.device)
        n_keys = ids.shape[1] + (0 if cache is None else cache.length)
        mask = Mask.of(causal=(ids.shape[1], n_keys), device=ids.device)
        more = []
        if self.ngrams is not None:
            seen = ids if cache is None else cache.append_ids(ids, self.ngrams.max_ngram - 1)
            more.append(self.ngrams(self.ngrams.batch_of(seen, ids.shape[1])))
        x = self.embedding(ids, positions, *more)
        x = self.decoder(x, mask, make_rotation(self.config, positions), cache)
        weight = (self.embedding if self.output is None else self.output).weight
        return step(self, "logits", F.linear(x, weight) if self.output is None else self.output(x), x, weight=weight)

    def new_cache(self) -> DecoderCache:
        """Return an empty cache for `forward`."""
        return DecoderCache(len(self.decoder.layers))

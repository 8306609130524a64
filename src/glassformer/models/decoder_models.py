"""Models that write: `LanguageModel`, a decoder without an encoder (GPT's form), and `Translator`, the paper's model.

The language model predicts the next token. The paper's base and big sizes are here, too.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_embedding, make_rotation, make_stack
from glassformer.nn.attention import DecoderCache, Mask, next_positions
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
        positions, mask = next_positions(ids, cache)
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


BASE = ModelConfig(
    n_layers=6,
    d_model=512,
    n_heads=8,
    d_ff=2048,
    dropout=0.1,
    pre_norm=False,
    activation="relu",
    positions="sinusoidal",
    norm="layer",
    bias=True,  # the paper's in the feed-forward blocks; those of attention are a departure
    tie_embeddings=True,
)
"""The paper's base model (table 3): with its 37,000 tokens 63 million weights (paper: 65)."""
BIG = replace(BASE, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)
"""The paper's big model (table 3): 214 million weights (paper: 213)."""


class Translator(nn.Module):
    """Encoder and decoder (paper, figure 1).

    Source and target share one vocabulary. Tied embeddings (paper, 3.4): the output projection, the source
    and the target embedding are one matrix; learned positions are shared as well.

    Args:
        config: the Transformer's numbers.
        vocab_size: number of tokens V.
        max_len: longest source and longest target, in tokens.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, max_len: int) -> None:
        super().__init__()
        self.config, self.max_len = config, max_len
        self.tgt_embedding = make_embedding(config, vocab_size, max_len)
        if config.tie_embeddings:  # two modules, which hooks tell apart, with the same parameters
            same = {id(parameter): parameter for parameter in self.tgt_embedding.parameters()}
            self.src_embedding = copy.deepcopy(self.tgt_embedding, memo=same)
        else:
            self.src_embedding = make_embedding(config, vocab_size, max_len)
        self.encoder = make_stack(config)
        self.decoder = make_stack(config, cross=True)
        self.output = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        initialise(self)

    def forward(
        self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"], src_padding_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Return logits (B, T, V) of the token after each of tgt_in (B, T), given src (B, S).

        Targets are padded on the right, where the causal mask already hides the padding.
        """
        return self.decode(tgt_in, self.encode(src, src_padding_mask), src_padding_mask)

    def encode(
        self, src: Int[Tensor, "B S"], src_padding_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """Return the memory (B, S, D) of the source (B, S)."""
        positions = torch.arange(src.shape[1], device=src.device)[None]
        x, mask = self.src_embedding(src, positions), Mask.of(padding_mask=src_padding_mask)
        return self.encoder(x, mask, make_rotation(self.config, positions))

    def decode(
        self,
        tgt_in: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"],
        src_padding_mask: Bool[Tensor, "B S"] | None = None,
        cache: DecoderCache | None = None,
        positions: Int[Tensor, "#R T"] | None = None,
        mask: Mask | None = None,
    ) -> Float[Tensor, "R T V"]:
        """Return logits after each of tgt_in (R, T): R is B, or B · beam with a sentence's rows adjacent.

        With a cache, tgt_in holds only the tokens since the last call, and memory is read once.
        `positions` and `mask` of tgt_in are those of a text, read from left to right, unless they are given together.
        """
        if positions is None:
            positions, mask = next_positions(tgt_in, cache)
        rotation, memory_mask = make_rotation(self.config, positions), Mask.of(padding_mask=src_padding_mask)
        x = self.tgt_embedding(tgt_in, positions)
        x = self.decoder(x, mask, rotation, cache, memory=memory, memory_mask=memory_mask)
        weight, bias = (self.tgt_embedding if self.output is None else self.output).weight, self.output_bias
        logits = F.linear(x, weight) if self.output is None else self.output(x)
        logits = logits if bias is None else logits + bias
        return step(self, "logits", logits, x, weight=weight, bias=bias)

    def new_cache(self) -> DecoderCache:
        """Return an empty cache for `decode`."""
        return DecoderCache(len(self.decoder.layers))

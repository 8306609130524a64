"""`Translator`: the paper's encoder–decoder, with its base and big sizes one call away."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models.build import initialise, make_decoder, make_embedding, make_encoder, make_rotation
from glassformer.nn.attention import CAUSAL
from glassformer.nn.cache import DecoderCache, positions_of
from glassformer.nn.masks import padding_to_attention_mask

BASE = ModelConfig(
    n_layers=6, d_model=512, n_heads=8, d_ff=2048, dropout=0.1, pre_norm=False, activation="relu",
    positions="sinusoidal", norm="layer", bias=True, tie_embeddings=True,
)  # fmt: skip
"""The paper's base model (table 3)."""
BIG = replace(BASE, d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)
"""The paper's big model (table 3)."""


class Translator(nn.Module):
    """Encoder and decoder (paper, figure 1).

    Tied embeddings (paper, 3.4): the output projection is the target embedding, and with one shared
    vocabulary the source embedding too.

    Args:
        config: the Transformer's numbers.
        src_vocab_size, tgt_vocab_size: rows of the embeddings; V is the target's.
        max_len: longest source and longest target, in tokens.
        shared_vocab: source and target ids mean the same tokens, so one embedding can serve both.
    """

    def __init__(
        self,
        config: ModelConfig,
        src_vocab_size: int,
        tgt_vocab_size: int,
        max_len: int,
        shared_vocab: bool = True,
    ) -> None:
        super().__init__()
        if shared_vocab and src_vocab_size != tgt_vocab_size:
            raise ValueError(f"a shared vocabulary has one size, not {src_vocab_size} and {tgt_vocab_size}")
        self.config, self.max_len = config, max_len
        self.tgt_embedding = make_embedding(config, tgt_vocab_size, max_len)
        shared = config.tie_embeddings and shared_vocab
        self.src_embedding = self.tgt_embedding if shared else make_embedding(config, src_vocab_size, max_len)
        self.encoder = make_encoder(config)
        self.decoder = make_decoder(config, cross=True)
        self.output = None if config.tie_embeddings else nn.Linear(config.d_model, tgt_vocab_size, bias=False)
        initialise(self, config.n_layers)

    @staticmethod
    def base(vocab_size: int = 37_000, max_len: int = 1024) -> Translator:
        """The paper's base model: 6 + 6 layers, d 512, 8 heads, d_ff 2048; 65 million parameters there."""
        return Translator(BASE, vocab_size, vocab_size, max_len)

    @staticmethod
    def big(vocab_size: int = 37_000, max_len: int = 1024) -> Translator:
        """The paper's big model: d 1024, 16 heads, d_ff 4096; 213 million parameters there."""
        return Translator(BIG, vocab_size, vocab_size, max_len)

    def forward(
        self,
        src: Int[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        src_padding_mask: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits (B, T, V) of the token after each of tgt_in (B, T), given src (B, S).

        Targets are padded on the right, where a causal mask already hides the padding.
        """
        return self.decode(tgt_in, self.encode(src, src_padding_mask), src_padding_mask)

    def encode(
        self, src: Int[Tensor, "B S"], src_padding_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """The memory (B, S, D) of the source (B, S)."""
        positions = positions_of(src.shape[1], None, src.device)
        x = self.src_embedding(src, positions)
        mask = padding_to_attention_mask(src_padding_mask)
        return self.encoder(x, mask, make_rotation(self.config, positions))

    def decode(
        self,
        tgt_in: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"],
        src_padding_mask: Bool[Tensor, "B S"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "R T V"]:
        """Logits after each of tgt_in (R, T): R is B, or B · beam with a sentence's rows adjacent.

        With a cache, tgt_in holds only the tokens since the last call, and memory is read once.
        """
        positions = positions_of(tgt_in.shape[1], cache, tgt_in.device)
        x = self.decoder(
            self.tgt_embedding(tgt_in, positions),
            memory,
            mask=CAUSAL,
            memory_mask=padding_to_attention_mask(src_padding_mask),
            rotation=make_rotation(self.config, positions),
            cache=cache,
        )
        return F.linear(x, self.tgt_embedding.weight) if self.output is None else self.output(x)

    def new_cache(self) -> DecoderCache:
        """An empty cache for `decode`."""
        return DecoderCache(len(self.decoder.layers))

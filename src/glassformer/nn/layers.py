"""Encoder and decoder layers, and the stacks of them: the paper's figure 1.

A layer receives its parts and only says how they are joined; `models/build.py` makes the parts from numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.cache import DecoderCache, LayerCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.masks import Mask
from glassformer.nn.positions import Rotation


class Residual(nn.Module):
    """x + dropout(f(norm(x))) with pre-norm; norm(x + dropout(f(x))) with post-norm, the paper's (5.4).

    Pre-norm leaves a path from the loss to every layer that no norm rescales, so deep stacks train
    without a careful warm-up (Xiong et al. 2020).
    """

    def __init__(self, norm: nn.Module, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm, self.dropout, self.pre_norm = norm, Dropout(dropout), pre_norm

    def forward(self, x: Float[Tensor, "B L D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B L D"]:
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self attention, then feed-forward, each in a residual (paper, 3.1)."""

    def __init__(self, self_attention: MultiHeadAttention, feed_forward: nn.Module, residuals: Sequence[Residual]):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.self_residual, self.feed_forward_residual = residuals

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, rotation: Rotation | None = None
    ) -> Float[Tensor, "B S D"]:
        x = self.self_residual(x, lambda y: self.self_attention(y, mask=mask, rotation=rotation))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self attention, cross attention over the memory, feed-forward (paper, 3.1).

    In cross attention the queries come from the decoder, the keys and values from the encoder. Without
    `cross_attention` (and with two residuals) it is the layer of a decoder-only language model.
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: nn.Module,
        residuals: Sequence[Residual],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        if len(residuals) != (2 if cross_attention is None else 3):
            raise ValueError(f"each sublayer needs its own residual, and {len(residuals)} came")
        self.self_residual, *cross, self.feed_forward_residual = residuals
        self.cross_residual = cross[0] if cross else None

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "R T D"]:
        """R rows attend to B memories; R is B, or B · beam with the hypotheses of a sentence adjacent.

        Raises:
            ValueError: there is cross attention and no memory to attend to.
        """
        if self.cross_attention is not None and memory is None:
            raise ValueError("a decoder layer with cross attention needs the encoder's output as `memory`")
        past = cache.self_attention if cache else None
        x = self.self_residual(x, lambda y: self.self_attention(y, mask=mask, rotation=rotation, cache=past))
        if self.cross_attention is not None and self.cross_residual is not None and memory is not None:
            cross, seen = self.cross_attention, cache.cross_attention if cache else None

            def attend(y: Tensor) -> Tensor:
                # The beam folds into the query axis, so that keys and values are kept once a sentence.
                folded = y.reshape(memory.shape[0], -1, y.shape[-1])  # (B, beam·T, D)
                return cross(folded, memory, memory_mask, cache=seen).reshape(y.shape)

            x = self.cross_residual(x, attend)
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder layers and, with pre-norm, a last norm."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, rotation: Rotation | None = None
    ) -> Float[Tensor, "B S D"]:
        for layer in self.layers:
            x = layer(x, mask, rotation)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers and, with pre-norm, a last norm."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        rotation: Rotation | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "R T D"]:
        for i, layer in enumerate(self.layers):
            past = cache.layers[i] if cache else None
            x = layer(x, memory, mask=mask, memory_mask=memory_mask, rotation=rotation, cache=past)
        return self.norm(x)

"""Encoder and decoder layers, and stacks of them (paper, figure 1): norms, feed-forward blocks, residuals.

A layer receives its parts as arguments; `models/build.py` makes them from a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.attention import Mask, MultiHeadAttention
from glassformer.nn.cache import DecoderCache, LayerCache
from glassformer.nn.dropout import Dropout
from glassformer.nn.embeddings import Rotation


class LayerNorm(nn.Module):
    """(x - mean) / √(var + eps) · weight + bias over the features (Ba et al. 2016); the paper's norm."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight (Zhang and Sennrich 2019): LayerNorm without mean and bias."""

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        return (x * torch.rsqrt(mean_square + self.eps)).to(x.dtype) * self.weight.to(x.dtype)


Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"]
"""The last is a module of its own, `SwiGLU`."""


def activate(name: object, hidden: Float[Tensor, "... F"]) -> Float[Tensor, "... F"]:
    """Apply the activation of that name element by element.

    Raises:
        ValueError: there is none of that name (or a class or function came where a name is expected).
    """
    match name:
        case "relu":
            return F.relu(hidden)
        case "gelu":
            return F.gelu(hidden)
        case "gelu-tanh":
            return F.gelu(hidden, approximate="tanh")
        case "silu":
            return F.silu(hidden)
        case _:
            raise ValueError(f"there is no activation {name!r}: `activate` in nn/layers.py has no case")


class FeedForward(nn.Module):
    """down_proj(activation(up_proj(x))) (paper, 3.3, with ReLU; GELU as in BERT and GPT)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation = "relu", bias: bool = True) -> None:
        super().__init__()
        activate(activation, torch.empty(0))  # one that is missing fails here, not in the first forward
        self.activation = activation
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return self.down_proj(activate(self.activation, self.up_proj(x)))


class SwiGLU(nn.Module):
    """down_proj(silu(gate_proj(x)) ⊙ up_proj(x)) (Shazeer 2020): three matrices.

    2/3 of the d_ff of a `FeedForward` would cost the same; the default d_ff is not reduced.
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = True):
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Residual(nn.Module):
    """x + dropout(f(norm(x))) with pre-norm; norm(x + dropout(f(x))) with post-norm, the paper's (5.4).

    With pre-norm no norm lies on the path of the residuals, so that deep stacks train without a long warm-up
    (Xiong et al. 2020).
    """

    def __init__(self, norm: nn.Module, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm, self.dropout, self.pre_norm = norm, Dropout(dropout), pre_norm

    def forward(self, x: Float[Tensor, "B L D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B L D"]:
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self attention, then feed-forward, each with a residual connection (paper, 3.1)."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward | SwiGLU,
        *,
        self_residual: Residual,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = self_attention, feed_forward
        self.self_residual, self.feed_forward_residual = self_residual, feed_forward_residual

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, rotation: Rotation | None = None
    ) -> Float[Tensor, "B S D"]:
        x = self.self_residual(x, lambda y: self.self_attention(y, mask=mask, rotation=rotation))
        return self.feed_forward_residual(x, self.feed_forward)

    def output_projections(self) -> list[nn.Linear]:
        """Return the linear layers that end a residual branch."""
        return [self.self_attention.o_proj, self.feed_forward.down_proj]


class DecoderLayer(nn.Module):
    """Causal self attention, cross attention, feed-forward, each with a residual connection (paper, 3.1).

    In cross attention the queries come from the decoder, the keys and values from the encoder's output (`memory`).
    Without `cross_attention` and `cross_residual` it is the layer of a decoder-only language model.
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: FeedForward | SwiGLU,
        *,
        self_residual: Residual,
        cross_residual: Residual | None = None,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        if (cross_attention is None) != (cross_residual is None):
            raise ValueError("expected cross_attention and cross_residual both or neither")
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward
        # In this order, which is that of the parameters.
        self.self_residual, self.feed_forward_residual = self_residual, feed_forward_residual
        self.cross_residual = cross_residual

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
        """Return the output of R rows for B memories: R is B, or B · beam with a sentence's hypotheses adjacent.

        Raises:
            ValueError: the layer has cross attention and got no memory.
        """
        past = cache.self_attention if cache else None
        x = self.self_residual(x, lambda y: self.self_attention(y, mask=mask, rotation=rotation, cache=past))
        if self.cross_residual is not None:
            if memory is None:
                raise ValueError("a decoder layer with cross attention needs the encoder's output as `memory`")
            x = self.cross_residual(x, lambda y: self._attend_to_memory(y, memory, memory_mask, cache))
        return self.feed_forward_residual(x, self.feed_forward)

    def output_projections(self) -> list[nn.Linear]:
        """Return the linear layers that end a residual branch."""
        cross = [] if self.cross_attention is None else [self.cross_attention.o_proj]
        return [self.self_attention.o_proj, *cross, self.feed_forward.down_proj]

    def _attend_to_memory(
        self, x: Float[Tensor, "R T D"], memory: Float[Tensor, "B S D"], mask: Mask | None, cache: LayerCache | None
    ) -> Float[Tensor, "R T D"]:
        assert self.cross_attention is not None
        # The beam folds into the query axis, so that keys and values are kept once per sentence.
        queries = x.reshape(memory.shape[0], -1, x.shape[-1])  # (B, beam·T, D)
        past = cache.cross_attention if cache else None
        return self.cross_attention(queries, memory, mask, cache=past).reshape(x.shape)


class Encoder(nn.Module):
    """A stack of encoder layers, with pre-norm followed by a norm."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm or nn.Identity()

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Mask | None = None, rotation: Rotation | None = None
    ) -> Float[Tensor, "B S D"]:
        for layer in self.layers:
            x = layer(x, mask, rotation)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers, with pre-norm followed by a norm."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm or nn.Identity()

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

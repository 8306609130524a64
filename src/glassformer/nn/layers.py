"""Encoder and decoder layers, and stacks of them (paper, figure 1): norms, feed-forward blocks, residuals.

A layer receives its parts as arguments; `models/build.py` makes them from a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.attention import DecoderCache, KVCache, Mask, MultiHeadAttention
from glassformer.nn.dropout import Dropout
from glassformer.nn.embeddings import Rotation
from glassformer.nn.steps import step


class LayerNorm(nn.Module):
    """(x - mean) / √(var + eps) · weight + bias over the features (Ba et al. 2016); the paper's norm."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        y = F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        return step(self, "norm", y, x, op="layer_norm", eps=self.eps)


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight (Zhang and Sennrich 2019): LayerNorm without mean and bias."""

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        y = (x * torch.rsqrt(mean_square + self.eps)).to(x.dtype) * self.weight.to(x.dtype)
        return step(self, "norm", y, x, op="rms_norm", eps=self.eps)


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
        self.activation = activation
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        y = self.up_proj(x)
        op = self.activation.replace("-", "_")
        return self.down_proj(step(self, "hidden", activate(self.activation, y), y, op=op))


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
        gate, y = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(step(self, "hidden", F.silu(gate) * y, gate, y, op="swiglu"))


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
            y = sublayer(self.norm(x))
            return step(self, "residual", x + self.dropout(y), x, y)
        y = sublayer(x)
        return self.norm(step(self, "residual", x + self.dropout(y), x, y))


class Layer(nn.Module):
    """Self attention, perhaps cross attention, feed-forward, each with a residual connection (paper, 3.1).

    With cross attention it is the paper's decoder layer: queries come from the decoder, keys and values from the
    encoder's output (`memory`). Without it, it is an encoder layer, and under a causal mask that of a language model.
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward | SwiGLU,
        *,
        self_residual: Residual,
        feed_forward_residual: Residual,
        cross_attention: MultiHeadAttention | None = None,
        cross_residual: Residual | None = None,
    ) -> None:
        super().__init__()
        # In this order, which is that of the parameters.
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward
        self.self_residual, self.feed_forward_residual = self_residual, feed_forward_residual
        self.cross_residual = cross_residual

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        mask: Mask | None = None,
        rotation: Rotation | None = None,
        cache: tuple[KVCache, KVCache] | None = None,
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Mask | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Return the output of R rows for B memories: R is B, or B · beam with a sentence's hypotheses adjacent."""
        past, read = cache or (None, None)

        def attend_to_memory(y: Tensor) -> Tensor:
            # The beam folds into the query axis, so that keys and values are kept once per sentence.
            assert self.cross_attention is not None and memory is not None
            queries = y.reshape(memory.shape[0], -1, y.shape[-1])  # (B, beam·T, D)
            return self.cross_attention(queries, memory, memory_mask, cache=read).reshape(y.shape)

        x = self.self_residual(x, lambda y: self.self_attention(y, mask=mask, rotation=rotation, cache=past))
        if self.cross_residual is not None:
            x = self.cross_residual(x, attend_to_memory)
        return self.feed_forward_residual(x, self.feed_forward)


class Stack(nn.Module):
    """The layers of an encoder or a decoder, with pre-norm followed by a norm."""

    def __init__(self, layers: Sequence[Layer], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm or nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        mask: Mask | None = None,
        rotation: Rotation | None = None,
        cache: DecoderCache | None = None,
        **memory: Any,
    ) -> Float[Tensor, "R T D"]:
        """Return the output of the last layer; `memory` is `memory` and `memory_mask` of `Layer.forward`."""
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, rotation, cache.layers[i] if cache else None, **memory)
        return self.norm(x)

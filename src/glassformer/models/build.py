"""From numbers to parts: the layers and stacks a `ModelConfig` describes, and what a forward pass costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.config import ModelConfig
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.embeddings import LearnedPositions, Rotation, SinusoidalPositions, TokenEmbedding
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual, RMSNorm, Stack, SwiGLU


def encoder_flops(c: ModelConfig, length: float) -> float:
    """Return the FLOPs of the encoder per token, for texts of `length` tokens."""
    return c.n_layers * _layer_flops(c, length)


def decoder_flops(c: ModelConfig, length: float, vocab_size: int, cross: bool) -> float:
    """Return the FLOPs of the decoder with its output projection, per token of a target of `length` tokens.

    Causal attention sees half of the keys on average. The source of cross attention counts as equally long.
    """
    n_keys = (length / 2, length) if cross else (length / 2,)
    return c.n_layers * _layer_flops(c, *n_keys) + 2 * c.d_model * vocab_size


def _layer_flops(c: ModelConfig, *n_keys: float) -> float:
    """Return the FLOPs of a layer per query: each attention's projections, scores and sum, and the feed-forward."""
    width = c.n_heads * d_head_of(c)
    attention = sum(8 * c.d_model * width + 4 * n * width for n in n_keys)
    return attention + (6 if c.activation == "swiglu" else 4) * c.d_model * d_ff_of(c)


class _NoInitialisation(TorchFunctionMode):
    """Leaves out what no shape depends on, and for which torch would import its compiler on "meta"."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def without_memory() -> Iterator[None]:
    """Have models built in the block on torch's "meta" device: they have shapes, and take no memory."""
    with _NoInitialisation(), torch.device("meta"):
        yield


def d_ff_of(config: ModelConfig) -> int:
    """Return the feed-forward width, by default the paper's 4 · d_model."""
    return config.d_ff or 4 * config.d_model


def d_head_of(config: ModelConfig) -> int:
    """Return the width of a head, by default d_model / n_heads."""
    return config.d_head or config.d_model // config.n_heads


def make_stack(config: ModelConfig, cross: bool = False) -> Stack:
    """Make `n_layers` layers, with cross attention or without."""

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(config.d_model, config.n_heads, config.d_head, bias=config.bias)

    def residual() -> Residual:
        return Residual(make_norm(config), config.dropout, config.pre_norm)

    layers = [
        Layer(
            self_attention=attention(),
            cross_attention=attention() if cross else None,
            feed_forward=make_feed_forward(config),
            self_residual=residual(),
            cross_residual=residual() if cross else None,
            feed_forward_residual=residual(),
        )
        for _ in range(config.n_layers)
    ]
    return Stack(layers, make_norm(config) if config.pre_norm else None)


def make_norm(config: ModelConfig) -> LayerNorm | RMSNorm:
    """Make a norm of the configured kind."""
    match config.norm:
        case "layer":
            return LayerNorm(config.d_model, config.norm_eps or 1e-5)
        case "rms":
            return RMSNorm(config.d_model, config.norm_eps or 1e-6)


def make_feed_forward(config: ModelConfig) -> FeedForward | SwiGLU:
    """Make a feed-forward block with the configured activation; a gated one is a module of its own.

    Raises:
        ValueError: there is no such activation.
    """
    sizes = config.d_model, d_ff_of(config)
    if config.activation == "swiglu":
        return SwiGLU(*sizes, config.bias)
    return FeedForward(*sizes, config.activation, config.bias)


def make_embedding(config: ModelConfig, vocab_size: int, max_len: int) -> TokenEmbedding:
    """Make a token embedding with the positions that are added to it."""
    positions: nn.Module | None
    match config.positions:
        case "sinusoidal":
            # A table that no file holds needs its numbers, also in a model that is built on "meta" and then filled.
            with torch.device("cpu") if torch.get_default_device().type == "meta" else nullcontext():
                positions = SinusoidalPositions(max_len, config.d_model, config.embedding_init_std or 1.0)
        case "learned":
            positions = LearnedPositions(max_len, config.d_model)
        case "rotary" | "none":
            positions = None
    p = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    norm = make_norm(config) if config.embedding_norm else None
    return TokenEmbedding(vocab_size, config.d_model, positions, p, config.embedding_init_std, norm)


def make_rotation(config: ModelConfig, positions: Tensor) -> Rotation | None:
    """Return the rotation of positions (B, L) for self attention, or None if the model has no rotary positions."""
    return Rotation.at(positions, d_head_of(config), config.rope_base) if config.positions == "rotary" else None


def initialise(model: nn.Module) -> None:
    """Initialise linear layers: Xavier-uniform weights and zero biases (Glorot and Bengio 2010).

    The projections that end a residual branch are scaled by 1/√(2 n), n being the layers of their stack, so that depth
    does not increase the variance of the sum (GPT-2; Radford et al. 2019, 2.3). Departures from it: 2 n also with cross
    attention, which makes 3 n branches, and also with post-norm, where it only makes them start small. The paper does
    not state its initialisation. Embeddings and norms initialise themselves.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for stack in model.modules():
        if isinstance(stack, Stack):
            for name, module in stack.named_modules():
                if name.endswith((".o_proj", ".down_proj")):
                    with torch.no_grad():
                        cast(nn.Linear, module).weight.mul_((2 * len(stack.layers)) ** -0.5)

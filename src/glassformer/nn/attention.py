"""Scaled dot-product attention as one pure function, and multi-head attention around it.

Self, causal and cross attention are the same code with other arguments. Masks come from the model
(`masks.py`), keys and values of past steps from a cache (`cache.py`); neither is built here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.cache import KVCache
from glassformer.nn.dropout import dropout as drop
from glassformer.nn.masks import causal_mask
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation

CAUSAL: Final = "causal"
"""The mask under which query i of the last Q positions sees its own position and the past."""

Mask: TypeAlias = Bool[Tensor, "#B #H #Q #K"] | Literal["causal"] | None
"""True = may attend, broadcastable to (B, H, Q, K); or CAUSAL; or None, everything may be seen."""

Observer: TypeAlias = Callable[[str, Tensor], None]

_observer: ContextVar[Observer | None] = ContextVar("attention observer", default=None)


@contextmanager
def observe_attention(observer: Observer) -> Iterator[None]:
    """Within the block, every call of `attention` in this thread takes the explicit path and shows
    each step to `observer(name, tensor)`, in this order: "q", "k", "v" as they come in; "products"
    (q kᵀ), "scores" (products · scale), "mask" if there is one (boolean, broadcastable to the scores),
    "weights" and "context".

    Nobody watching costs one look at a context variable per call.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def _use_fused(name: str, tensor: Tensor) -> None:
    """The observer that sees nothing: under it the fused kernel is called, wherever it can be."""


@contextmanager
def fused_attention() -> Iterator[None]:
    """Within the block, every call of `attention` in this thread that does not return weights takes the
    fused path, also where the explicit one is faster: to compare the two."""
    with observe_attention(_use_fused):
        yield


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask = ..., *, scale: float | None = ...,
              dropout: float = ..., return_weights: Literal[False] = ...) -> Tensor: ...  # fmt: skip
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask = ..., *, scale: float | None = ...,
              dropout: float = ..., return_weights: Literal[True]) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Mask = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Float[Tensor, "B H Q Ev"] | tuple[Float[Tensor, "B H Q Ev"], Float[Tensor, "B H Q K"]]:
    """softmax(q kᵀ · scale) v: scaled dot-product attention (Vaswani et al. 2017, 3.2.1, equation 1).

    With q = k = v = x and scale 1 it is the parameter-free self-attention that tutorials begin with.

    Args:
        q, k, v: queries (B, H, Q, E), keys (B, H, K, E) and values (B, H, K, Ev).
        mask: which keys each query may attend to. A query with no key at all gets a context of zeros
            (and weights of zeros), where a naive softmax would give NaN.
        scale: what scores are multiplied by; 1/√E of one head when absent, the paper's.
        dropout: share of the weights to drop (none in the paper; many implementations have it).
        return_weights: also return the softmax weights (B, H, Q, K).

    Returns:
        The context (B, H, Q, Ev), or (context, weights).
    """
    if scale is None:
        scale = float(q.shape[-1] ** -0.5)
    observer = _observer.get()
    fuse = observer is _use_fused or (observer is None and _fused_pays(q, k))
    if fuse and not return_weights:
        return _fused(q, k, v, mask, scale, dropout)
    looked_at = return_weights or observer is not None
    context, weights = _explicit(q, k, v, mask, scale, dropout, observer, looked_at)
    return (context, weights) if return_weights else context


def _fused_pays(q: Tensor, k: Tensor) -> bool:
    """On a GPU always. On a CPU the fused kernel won only above about a thousand keys (measured with
    torch 2.13 on two AVX-512 cores, forward and backward), where it saves the memory of the scores."""
    return q.device.type != "cpu" or k.shape[-2] > 1024


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float) -> Tensor:
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    if isinstance(mask, str):
        # torch's is_causal aligns queries with the first keys; with a cache ours are the last.
        if n_queries == n_keys:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=scale)
        mask = None if n_queries == 1 else causal_mask(n_queries, n_keys, q.device)
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    return context if mask is None else _zero_blind_rows(context, mask)


def _explicit(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float,
    observer: Observer | None, looked_at: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Step by step, as the paper has it. Blind rows of the weights are zeroed only when somebody looks:
    those of the context always are."""
    if isinstance(mask, str):
        mask = None if q.shape[-2] == 1 else causal_mask(q.shape[-2], k.shape[-2], q.device)
    scores = (
        (q * scale) @ k.transpose(-2, -1)  # (B, H, Q, K); scaling q is cheaper than scaling the scores
        if observer is None
        else _watched_scores(q, k, v, mask, scale, observer)
    )
    if mask is not None:
        # A finite "minus infinity", added while the mask is still small: a row of nothing but masked
        # keys stays free of NaN, in the gradient too, and is zeroed below.
        lowest = torch.finfo(scores.dtype).min / 2
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, lowest)
    weights = scores.softmax(dim=-1)
    if mask is not None and looked_at:
        weights = _zero_blind_rows(weights, mask)
    if observer is not None:
        observer("weights", weights)
    context = drop(weights, dropout).to(v.dtype) @ v
    if mask is not None:
        context = _zero_blind_rows(context, mask)
    if observer is not None:
        observer("context", context)
    return context, weights


def _watched_scores(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, observer: Observer
) -> Tensor:
    """The scores in two steps, as equation 1 writes them: q kᵀ, then the scale."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        observer(name, tensor)
    products = q @ k.transpose(-2, -1)  # (B, H, Q, K)
    observer("products", products)
    scores = products * scale
    observer("scores", scores)
    if mask is not None:
        observer("mask", mask)
    return scores


def _zero_blind_rows(x: Tensor, mask: Tensor) -> Tensor:
    """Zero the rows of x (B, H, Q, ·) whose query may attend to no key."""
    return torch.where(mask.any(dim=-1, keepdim=True), x, 0.0)  # a product would keep a NaN


class MultiHeadAttention(nn.Module):
    """Attention in several heads side by side (paper, 3.2.2): softmax(QKᵀ/√d_head) V per head, the
    heads concatenated and mixed by a last linear layer.

    Each head sees its own projection of the whole vector, `d_head` wide; d_head · n_heads need not be
    d_model, so heads may be narrow or wide. The paper's projections have no bias; its widely used
    implementations do (`bias=True`).

    Args:
        d_model: width of what comes in and goes out.
        n_heads: number of heads H.
        d_head: width E of a head; d_model / n_heads when absent.
        bias: biases in the four projections.
        dropout: dropout on the attention weights.
        qk_norm: RMS-normalise each head's queries and keys (Henry et al. 2020); not in the paper.

    Raises:
        ValueError: d_head is absent and n_heads does not divide d_model.
    """

    def __init__(
        self, d_model: int, n_heads: int, d_head: int | None = None, *, bias: bool = True,
        dropout: float = 0.0, qk_norm: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if d_head is None:
            if d_model % n_heads:
                raise ValueError(f"d_model {d_model} is not a multiple of n_heads {n_heads}; give d_head")
            d_head = d_model // n_heads
        self.n_heads, self.d_head, self.dropout = n_heads, d_head, dropout
        width = n_heads * d_head
        self.q_proj = nn.Linear(d_model, width, bias=bias)
        self.k_proj = nn.Linear(d_model, width, bias=bias)
        self.v_proj = nn.Linear(d_model, width, bias=bias)
        self.o_proj = nn.Linear(width, d_model, bias=bias)
        self.q_norm = RMSNorm(d_head) if qk_norm else nn.Identity()
        self.k_norm = RMSNorm(d_head) if qk_norm else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B Q D"],
        memory: Float[Tensor, "B K D"] | None = None,
        mask: Mask = None,
        *,
        rotation: Rotation | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B Q D"]:
        """Queries from x; keys and values from `memory` (cross attention) or from x itself.

        Args:
            x: (B, Q, D). memory: (B, K, D), the encoder's output, or None for self attention.
            mask: see `attention`.
            rotation: rotary positions of x, for self attention.
            cache: keys and values of earlier steps. Self attention appends to it; cross attention
                fills it once and afterwards reads it.
        """
        q = self.q_norm(self._split_heads(self.q_proj(x)))
        if memory is not None and cache is not None and cache.length:
            k, v = cache.keys, cache.values
        else:
            source = x if memory is None else memory
            k = self.k_norm(self._split_heads(self.k_proj(source)))
            v = self._split_heads(self.v_proj(source))
            if rotation is not None:
                k = rotation.rotate(k)
            if cache is not None:
                k, v = cache.append(k, v)
        if rotation is not None:
            q = rotation.rotate(q)
        context = attention(q, k, v, mask, dropout=self.dropout if self.training else 0.0)
        return self.o_proj(self._combine_heads(context))

    def _split_heads(self, x: Float[Tensor, "B L HE"]) -> Float[Tensor, "B H L E"]:
        return x.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def _combine_heads(self, x: Float[Tensor, "B H L E"]) -> Float[Tensor, "B L HE"]:
        return x.transpose(1, 2).flatten(-2)

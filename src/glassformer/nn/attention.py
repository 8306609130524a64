"""Scaled dot-product attention as one pure function, its fused twin, and multi-head attention around them.

Self, causal and cross attention are the same code with other arguments. Masks come from the model
(`masks.py`), keys and values of past steps from a cache (`cache.py`), and a tap from whoever looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, overload

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.cache import KVCache
from glassformer.nn.masks import Mask, hide, zero_blind_rows
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation

Tap: TypeAlias = Callable[[str, Tensor], Tensor]
"""Called with the name of a step and its tensor; the tensor it returns is the one that is used from there."""


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = ...,
    *,
    scale: float | None = ...,
    tap: Tap = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = ...,
    *,
    scale: float | None = ...,
    tap: Tap = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Bool[Tensor, "#B #H #Q #K"] | None = None,
    *,
    scale: float | None = None,
    tap: Tap = lambda _, tensor: tensor,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(q kᵀ · scale) v: scaled dot-product attention (Vaswani et al. 2017, 3.2.1, equation 1).

    With q = k = v = x and scale 1 it is the parameter-free self-attention that tutorials begin with.

    Args:
        q, k, v: queries (B, H, Q, E), keys (B, H, K, E) and values (B, H, K, Ev).
        mask: True = may attend, broadcastable to (B, H, Q, K). A query with no key at all gets weights and
            a context of zeros, where a naive softmax would give NaN.
        scale: what scores are multiplied by; 1/√E of one head when absent, the paper's.
        tap: sees "q", "k", "v", "products", "scores", "mask" if there is one, "weights"
            and "context", in this order.
        return_weights: also return the softmax weights (B, H, Q, K).

    Returns:
        The context (B, H, Q, Ev), or (context, weights).
    """
    scale = float(q.shape[-1] ** -0.5) if scale is None else scale
    q, k, v = tap("q", q), tap("k", k), tap("v", v)
    products = tap("products", q @ k.transpose(-2, -1))  # (B, H, Q, K)
    scores = tap("scores", products * scale)
    mask = None if mask is None else tap("mask", mask)
    weights = tap("weights", zero_blind_rows(hide(scores, mask).softmax(dim=-1), mask))
    context = tap("context", weights.to(v.dtype) @ v)
    return (context, weights) if return_weights else context


def fused_attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Mask | None = None,
    *,
    scale: float | None = None,
    kernel: bool | None = None,
) -> Float[Tensor, "B H Q Ev"]:
    """The twin of `attention` for when nobody looks: the same context, as fast as it can be had.

    `kernel` says whether torch's fused kernel does it. When absent it does where that pays: on a GPU, and on
    a CPU above about a thousand keys (measured with torch 2.13 on two AVX-512 cores, forward and backward),
    where it saves the memory of the scores.
    """
    scale = float(q.shape[-1] ** -0.5) if scale is None else scale
    if kernel is None:
        kernel = q.device.type != "cpu" or k.shape[-2] > 1024
    if kernel:
        told = {} if mask is None else mask.for_kernel()
        context = F.scaled_dot_product_attention(q, k, v, scale=scale, **told)
    else:
        scores = (q * scale) @ k.transpose(-2, -1)  # scaling q is cheaper than scaling the scores
        weights = (scores if mask is None else mask.hide(scores)).softmax(dim=-1)
        context = weights.to(v.dtype) @ v
    return context if mask is None or not mask.blind else zero_blind_rows(context, mask.allowed)


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
        qk_norm: RMS-normalise each head's queries and keys (Henry et al. 2020); not in the paper.

    Raises:
        ValueError: d_head is absent and n_heads does not divide d_model.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int | None = None,
        *,
        bias: bool = True,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        if d_head is None:
            if d_model % n_heads:
                raise ValueError(f"d_model {d_model} is not a multiple of n_heads {n_heads}; give d_head")
            d_head = d_model // n_heads
        self.n_heads, self.d_head = n_heads, d_head
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
        mask: Mask | None = None,
        *,
        rotation: Rotation | None = None,
        cache: KVCache | None = None,
        tap: Tap | None = None,
    ) -> Float[Tensor, "B Q D"]:
        """Queries from x; keys and values from `memory` (cross attention) or from x itself.

        Args:
            x: (B, Q, D). memory: (B, K, D), the encoder's output, or None for self attention.
            mask: which keys each query may attend to.
            rotation: rotary positions of x, for self attention.
            cache: keys and values of earlier steps. Self attention appends to it; cross attention
                fills it once and afterwards reads it.
            tap: see `attention`. An argument of the call, not of the module, which threads may share.
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
        if tap is None:
            return self.o_proj(self._combine_heads(fused_attention(q, k, v, mask)))
        context = attention(q, k, v, mask and mask.allowed, tap=tap)
        return self.o_proj(self._combine_heads(context))

    def _split_heads(self, x: Float[Tensor, "B L HE"]) -> Float[Tensor, "B H L E"]:
        return x.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def _combine_heads(self, x: Float[Tensor, "B H L E"]) -> Float[Tensor, "B L HE"]:
        return x.transpose(1, 2).flatten(-2)

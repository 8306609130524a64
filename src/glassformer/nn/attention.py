"""Scaled dot-product attention as one pure function, its fused equivalent, and multi-head attention.

Self, causal and cross attention differ only in their arguments: the mask (`masks.py`) comes from the model, the keys
and values of earlier positions from a cache (`cache.py`).
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.cache import KVCache
from glassformer.nn.masks import Mask, mask_scores, zero_fully_masked
from glassformer.nn.positions import Rotation

MIN_FUSED_QUERIES = 16

Tap = Callable[[str, Tensor], Tensor]
"""Called with the name of a step and its tensor; the tensor that it returns is used from there on."""


def attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Bool[Tensor, "#B #H #Q #K"] | None = None,
    *,
    scale: float | None = None,
    tap: Tap = lambda _, tensor: tensor,
) -> tuple[Float[Tensor, "B H Q Ev"], Float[Tensor, "B H Q K"]]:
    """Return the context softmax(q kᵀ · scale) v and the softmax, the attention weights (Vaswani et al. 2017, 3.2.1).

    Args:
        q: queries.
        k: keys.
        v: values.
        mask: True = may attend. A query without any key gets weights and a context of zeros, not NaN.
        scale: factor of the scores; the paper's 1/√E when absent.
        tap: called with "q", "k", "v", "products", "scores", "mask" if there is one, "weights" and "context".
    """
    scale = float(q.shape[-1] ** -0.5) if scale is None else scale
    q, k, v = tap("q", q), tap("k", k), tap("v", v)
    products = tap("products", q @ k.transpose(-2, -1))
    scores = tap("scores", products * scale)
    mask = None if mask is None else tap("mask", mask)
    weights = tap("weights", zero_fully_masked(mask_scores(scores, mask).softmax(dim=-1), mask))
    return tap("context", weights.to(v.dtype) @ v), weights


def fused_attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Mask | None = None,
    *,
    scale: float | None = None,
    kernel: bool | None = None,
) -> Float[Tensor, "B H Q Ev"]:
    """Return the context of `attention`, computed as fast as possible, without taps and weights.

    `kernel` selects torch's fused kernel; when absent, it is used where `is_fused_faster`.
    """
    scale = float(q.shape[-1] ** -0.5) if scale is None else scale
    if is_fused_faster(q, k, mask) if kernel is None else kernel:
        kwargs = {} if mask is None else mask.sdpa_kwargs()
        context = F.scaled_dot_product_attention(q, k, v, scale=scale, **kwargs)
    else:
        # Scaling q is cheaper than scaling the scores.
        scores = (q * scale) @ k.transpose(-2, -1)
        weights = (scores if mask is None else scores + mask.additive(scores.dtype)).softmax(dim=-1)
        context = weights.to(v.dtype) @ v
    return zero_fully_masked(context, mask.allowed) if mask is not None and mask.may_hide_all_keys else context


def is_fused_faster(q: Float[Tensor, "B H Q E"], k: Float[Tensor, "B H K E"], mask: Mask | None) -> bool:
    """Return True where torch's fused kernel is faster than explicit products: on a GPU, and on a CPU for many keys.

    On a CPU, AVX-512 or AVX2 (`benchmarks/kernels.py`), it depends on precision and mask. With a causal mask half of
    the scores are not computed, which is faster at any length in fp32. A few queries, as in decoding, are never faster.
    """
    if q.device.type != "cpu":
        return True
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    if n_queries < MIN_FUSED_QUERIES:
        return False
    if torch.is_autocast_enabled("cpu") or q.dtype != torch.float32:
        return n_keys >= 768
    return n_keys >= 256 or (mask is not None and mask.is_causal and n_queries == n_keys)


class MultiHeadAttention(nn.Module):
    """Attention in H heads (paper, 3.2.2): softmax(QKᵀ/√d_head) V per head, concatenated and projected.

    The paper's projections have no bias; its widely used implementations do. d_head is d_model / n_heads when absent.
    """

    def __init__(self, d_model: int, n_heads: int, d_head: int | None = None, *, bias: bool = True) -> None:
        super().__init__()
        if d_head is None and d_model % n_heads:
            raise ValueError(f"d_model {d_model} is not a multiple of n_heads {n_heads}; give d_head")
        self.n_heads, self.d_head = n_heads, d_head or d_model // n_heads
        width = self.n_heads * self.d_head
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, width, bias=bias) for _ in range(3))
        self.o_proj = nn.Linear(width, d_model, bias=bias)

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
        """Attend from x to `memory`, or to x itself.

        Args:
            x: input of the queries.
            memory: input of the keys and values, the encoder's output (cross attention); x when absent.
            mask: keys that each query may attend to.
            rotation: rotary positions of x (self attention).
            cache: self attention appends to it; cross attention fills it in its first call and then only reads it.
            tap: see `attention`; an argument of the call, since threads may share the module.
        """
        q = self._split_heads(self.q_proj(x))
        if memory is not None and cache is not None and cache.length:
            k, v = cache.keys, cache.values
        else:
            source = x if memory is None else memory
            k, v = self._split_heads(self.k_proj(source)), self._split_heads(self.v_proj(source))
            k = k if rotation is None else rotation.rotate(k)
            k, v = (k, v) if cache is None else cache.append(k, v)
        q = q if rotation is None else rotation.rotate(q)
        if tap is None:
            context = fused_attention(q, k, v, mask)
        else:
            context, _ = attention(q, k, v, mask and mask.allowed, tap=tap)
        return self.o_proj(self._combine_heads(context))

    def _split_heads(self, x: Float[Tensor, "B L HE"]) -> Float[Tensor, "B H L E"]:
        return x.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def _combine_heads(self, x: Float[Tensor, "B H L E"]) -> Float[Tensor, "B L HE"]:
        return x.transpose(1, 2).flatten(-2)

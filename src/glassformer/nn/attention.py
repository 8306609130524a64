"""Scaled dot-product attention as one pure function and its fused equivalent, multi-head attention, and masks.

Everywhere True = may attend; `torch.nn.MultiheadAttention.key_padding_mask` has the opposite meaning.

Self, causal and cross attention differ only in their arguments: the mask (`Mask.of`) comes from the model, the keys
and values of earlier positions from a cache, so that a new token costs one position instead of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.nn.embeddings import Rotation
from glassformer.nn.steps import is_reporting, step


@dataclass(frozen=True)
class Mask:
    """A boolean mask, and what is known of it.

    Args:
        allowed: True = may attend, broadcastable to (B, H, Q, K).
        is_causal: the mask is `causal_mask` and nothing else.
        may_hide_all_keys: there may be a query without any key, as in a text that is padding alone.
    """

    allowed: Bool[Tensor, "#B #H #Q #K"]
    is_causal: bool = False
    may_hide_all_keys: bool = True

    @staticmethod
    def of(
        *,
        causal: tuple[int, int] | None = None,
        padding_mask: Bool[Tensor, "B K"] | None = None,
        device: torch.device | str = "cpu",
    ) -> Mask | None:
        """Return the conjunction of the given masks; None when every query may attend to every key.

        Args:
            causal: (Q, K) of a `causal_mask`.
            padding_mask: True = real token; no query attends to the others.
            device: device of the causal mask.
        """
        padding = None if padding_mask is None else padding_mask[:, None, None, :]
        if causal is None or causal[0] == 1:  # a single query is the last position, and may attend to every key
            return None if padding is None else Mask(padding)
        past = causal_mask(*causal, device)[None, None]
        # Under a causal mask alone every query attends at least to itself.
        return Mask(past, is_causal=True, may_hide_all_keys=False) if padding is None else Mask(past & padding)


def causal_mask(n_queries: int, n_keys: int, device: torch.device | str = "cpu") -> Bool[Tensor, "Q K"]:
    """Return the look-ahead mask (paper, 3.2.3): a position may attend to itself and earlier ones.

    The queries are the last Q of the K positions, as they are when a cache holds the earlier ones.
    """
    full = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return full.tril(diagonal=n_keys - n_queries)


def additive_mask(mask: Bool[Tensor, "#B #H #Q #K"], dtype: torch.dtype) -> Float[Tensor, "#B #H #Q #K"]:
    """Return 0 where the mask is True, and half of the lowest number of `dtype` elsewhere.

    Since that is finite, a query without any key gives no NaN, in the gradient either. Half, so that a negative score
    added to it does not overflow to -∞.
    """
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min / 2)


def zero_fully_masked(x: Float[Tensor, "B H Q n"], mask: Tensor | None) -> Float[Tensor, "B H Q n"]:
    """Zero the rows of x whose query may attend to no key; multiplying by 0 would keep the NaN of torch's kernel."""
    return x if mask is None else torch.where(mask.any(dim=-1, keepdim=True), x, 0.0)


Tap = Callable[..., Tensor]
"""Called with the name of a step, its tensor, what it was computed from, and constants, as `step`; the tensor that it
returns is used from there on."""


def attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Bool[Tensor, "#B #H #Q #K"] | None = None,
    *,
    scale: float | None = None,
    tap: Tap = lambda _, tensor, *inputs, **constants: tensor,
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
    products = tap("products", q @ k.transpose(-2, -1), q, k)
    scores = tap("scores", products * scale, products, factor=scale)
    mask = None if mask is None else tap("mask", mask, scores)
    seen = scores if mask is None else scores + additive_mask(mask, scores.dtype)
    weights = tap("weights", zero_fully_masked(seen.softmax(dim=-1), mask), scores, mask)
    return tap("context", weights.to(v.dtype) @ v, weights, v), weights  # under autocast a softmax is fp32


def fused_attention(
    q: Float[Tensor, "B H Q E"], k: Float[Tensor, "B H K E"], v: Float[Tensor, "B H K Ev"], mask: Mask | None = None
) -> Float[Tensor, "B H Q Ev"]:
    """Return the context of `attention`, computed as fast as possible, without taps and weights.

    Torch's fused kernel is used on a GPU, and where torch may use it on a CPU (`flash_sdp_enabled`), but not for a
    single query, as in greedy decoding: it divides queries.
    """
    scale = q.shape[-1] ** -0.5
    # A compiled layer cannot ask torch, which uses its kernel unless that was forbidden.
    usable = torch.compiler.is_compiling() or torch.backends.cuda.flash_sdp_enabled()
    if q.device.type != "cpu" or (q.shape[-2] > 1 and usable):
        # Torch's `is_causal` aligns the first query with the first key, ours the last with the last.
        # A branch, since a compiled layer with dynamic shapes knows the result of a comparison only in one.
        allowed, causal = None if mask is None else mask.allowed, False
        if mask is not None and mask.is_causal and q.shape[-2] == k.shape[-2]:
            allowed, causal = None, True
        context = F.scaled_dot_product_attention(q, k, v, allowed, is_causal=causal, scale=scale)
    else:
        # Scaling q is cheaper than scaling the scores.
        scores = (q * scale) @ k.transpose(-2, -1)
        scores = scores if mask is None else scores + additive_mask(mask.allowed, torch.float32).to(scores.dtype)
        weights = scores.softmax(dim=-1)
        context = weights.to(v.dtype) @ v
    return zero_fully_masked(context, mask.allowed) if mask is not None and mask.may_hide_all_keys else context


class MultiHeadAttention(nn.Module):
    """Attention in H heads (paper, 3.2.2): softmax(QKᵀ/√d_head) V per head, concatenated and projected.

    The paper's projections have no bias; its widely used implementations do. Nor does it name dropout on the weights
    (5.4), and there is none. d_head is d_model / n_heads when absent.
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
    ) -> Float[Tensor, "B Q D"]:
        """Attend from x to `memory`, or to x itself.

        Args:
            x: input of the queries.
            memory: input of the keys and values, the encoder's output (cross attention); x when absent.
            mask: keys that each query may attend to.
            rotation: rotary positions of x (self attention).
            cache: self attention appends to it; cross attention fills it in its first call and then only reads it.
        """
        q = self._heads("q", self.q_proj(x), rotation)
        if memory is not None and cache is not None and cache.length:
            k, v = cache.keys, cache.values
        else:
            source = x if memory is None else memory
            k, v = self._heads("k", self.k_proj(source), rotation), self._split_heads(self.v_proj(source))
            k, v = (k, v) if cache is None else cache.append(k, v)
        if is_reporting():
            tap = partial(self._report, x if memory is None else memory, mask, rotation)
            context, _ = attention(q, k, v, mask and mask.allowed, tap=tap)
        else:
            context = fused_attention(q, k, v, mask)
        return self.o_proj(self._combine_heads(context))

    def _heads(self, letter: str, x: Float[Tensor, "B L HE"], rotation: Rotation | None) -> Float[Tensor, "B H L E"]:
        heads = self._split_heads(x)
        return heads if rotation is None else rotation.rotate(step(self, f"{letter}_heads", heads, x))

    def _report(
        self,
        source: Tensor,
        mask: Mask | None,
        rotation: Rotation | None,
        name: str,
        x: Tensor,
        *inputs: Tensor | None,
        **constants: Any,
    ) -> Tensor:
        """Report a step of `attention`: its queries and keys are heads of a projection, or these rotated.

        Keys and values may be from a cache: their tokens are those of `source`.
        """
        if name in ("q", "k") and rotation is not None:
            return step(self, name, x, f"{name}_heads", op="rotate", base=rotation.base)
        if name in ("q", "k", "v"):
            return step(self, name, x, f"{name}_proj", source)
        if name == "mask":
            constants["kind"] = "causal" if mask and mask.is_causal else "given" if x.shape[-2] > 1 else "padding"
        return step(self, name, x, *inputs, **constants)

    def _split_heads(self, x: Float[Tensor, "B L HE"]) -> Float[Tensor, "B H L E"]:
        return x.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def _combine_heads(self, x: Float[Tensor, "B H L E"]) -> Float[Tensor, "B L HE"]:
        return step(self, "concat", x.transpose(1, 2).flatten(-2), x)


FIRST_CAPACITY = 32
"""Positions of the first buffer, if it is not made for more at once."""


class KVCache:
    """Keys and values of one attention, (B, H, L, E) each, in buffers whose capacity grows by doubling."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []  # keys and values, (B, H, capacity, E) each
        self.length = 0

    @property
    def keys(self) -> Float[Tensor, "B H L E"]:
        return self._buffers[0][:, :, : self.length]

    @property
    def values(self) -> Float[Tensor, "B H L E"]:
        return self._buffers[1][:, :, : self.length]

    def append(self, k: Float[Tensor, "B H n E"], v: Float[Tensor, "B H n E"]) -> tuple[Tensor, Tensor]:
        """Append n positions; return all keys and values so far."""
        start, self.length = self.length, self.length + k.shape[2]
        capacity = self._buffers[0].shape[2] if self._buffers else 0
        if self.length > capacity:
            more = max(FIRST_CAPACITY, 2 * capacity, self.length) - capacity
            before = self._buffers or (k[:, :, :0], v[:, :, :0])
            self._buffers = [F.pad(buffer, (0, 0, 0, more)) for buffer in before]  # the axis of positions grows
        for buffer, new in zip(self._buffers, (k, v), strict=True):
            buffer[:, :, start : self.length] = new
        return self.keys, self.values

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Keep these rows, in this order (a row may be kept twice)."""
        # Several times faster than indexing with a tensor.
        self._buffers = [buffer.index_select(0, rows) for buffer in self._buffers]


class DecoderCache:
    """Caches of the self attention and of the cross attention of each layer.

    In a beam search self attention has a row per hypothesis, and cross attention a row per sentence: the hypotheses of
    a sentence, which are adjacent, share the keys and values of the memory. Of a model with n-grams of tokens the last
    ids of each row are kept too, which the next n-grams contain.
    """

    def __init__(self, n_layers: int) -> None:
        self.layers = [(KVCache(), KVCache()) for _ in range(n_layers)]
        self._recent: Tensor | None = None

    @property
    def length(self) -> int:
        """Return the number of positions decoded so far."""
        return self.layers[0][0].length

    def append_ids(self, ids: Int[Tensor, "B n"], max_kept: int) -> Int[Tensor, "B m"]:
        """Return the kept ids followed by the new ones, and keep the last `max_kept` of them."""
        seen = ids if self._recent is None else torch.cat([self._recent, ids], dim=1)
        self._recent = seen[:, max(0, seen.shape[1] - max_kept) :]
        return seen

    def select(self, rows: Int[Tensor, " R"], sentences: Int[Tensor, " B"] | None = None) -> None:
        """Keep these hypotheses, and these sentences (None: all), in this order; the caller selects of `memory`."""
        self._recent = None if self._recent is None else self._recent.index_select(0, rows)
        for of_tokens, of_memory in self.layers:
            of_tokens.select(rows)
            if sentences is not None:
                of_memory.select(sentences)


def next_positions(ids: Int[Tensor, "R T"], cache: DecoderCache | None) -> tuple[Int[Tensor, "1 T"], Mask | None]:
    """Return the positions of new tokens after those in the cache, equal in every row, and the mask of earlier ones."""
    n, start = ids.shape[1], 0 if cache is None else cache.length
    positions = torch.arange(start, start + n, device=ids.device)[None]
    return positions, Mask.of(causal=(n, start + n), device=ids.device)

"""Keys and values of the positions already decoded, so that a new token costs one position instead of all."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

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


class LayerCache:
    """Keys and values of one decoder layer, in its self attention and its cross attention."""

    def __init__(self) -> None:
        self.self_attention, self.cross_attention = KVCache(), KVCache()


class DecoderCache:
    """A `LayerCache` per layer.

    In a beam search self attention has a row per hypothesis, and cross attention a row per sentence: the hypotheses of
    a sentence, which are adjacent, share the keys and values of the memory. Of a model with n-grams of tokens the last
    ids of each row are kept too, which the next n-grams contain.
    """

    def __init__(self, n_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(n_layers)]
        self._recent: Tensor | None = None

    @property
    def length(self) -> int:
        """Return the number of positions decoded so far."""
        return self.layers[0].self_attention.length

    def append_ids(self, ids: Int[Tensor, "B n"], max_kept: int) -> Int[Tensor, "B m"]:
        """Return the kept ids followed by the new ones, and keep the last `max_kept` of them."""
        seen = ids if self._recent is None else torch.cat([self._recent, ids], dim=1)
        self._recent = seen[:, max(0, seen.shape[1] - max_kept) :]
        return seen

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Keep these hypotheses, in this order."""
        self._recent = None if self._recent is None else self._recent.index_select(0, rows)
        for layer in self.layers:
            layer.self_attention.select(rows)

    def select_memory(self, sentences: Int[Tensor, " R"]) -> None:
        """Keep the keys and values of these sentences, in this order; the caller selects the rows of `memory`."""
        for layer in self.layers:
            layer.cross_attention.select(sentences)

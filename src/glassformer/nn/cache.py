"""Keys and values of the positions already decoded, so that a new token costs one position and not all.

Attention asks a cache to append and reads it; how a search reorders and drops rows is said here and
nowhere in attention. All rows of a cache have the same length.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

FIRST_CAPACITY = 32


class KVCache:
    """Keys and values of one attention, (B, H, L, E) each, in buffers that grow by doubling."""

    def __init__(self) -> None:
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self.length = 0

    @property
    def keys(self) -> Float[Tensor, "B H L E"]:
        return self._so_far(self._keys)

    @property
    def values(self) -> Float[Tensor, "B H L E"]:
        return self._so_far(self._values)

    def append(self, k: Float[Tensor, "B H n E"], v: Float[Tensor, "B H n E"]) -> tuple[Tensor, Tensor]:
        """Add n positions; returns all keys and values so far."""
        end = self.length + k.shape[2]
        self._keys = self._with_room(self._keys, k, end)
        self._values = self._with_room(self._values, v, end)
        self._keys[:, :, self.length : end] = k
        self._values[:, :, self.length : end] = v
        self.length = end
        return self.keys, self.values

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Keep these rows, in this order (a row may be kept twice)."""
        if self._keys is not None and self._values is not None:
            # index_select is several times faster than indexing with a tensor here.
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)

    def _so_far(self, buffer: Tensor | None) -> Tensor:
        if buffer is None:
            raise RuntimeError("the cache is empty")
        return buffer[:, :, : self.length]

    def _with_room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if buffer is not None and end <= buffer.shape[2]:
            return buffer
        # The first append is often a whole prompt, or an encoder's memory that never grows.
        capacity = max(FIRST_CAPACITY, end) if buffer is None else max(2 * buffer.shape[2], end)
        grown = new.new_empty(new.shape[0], new.shape[1], capacity, new.shape[3])
        if buffer is not None:
            grown[:, :, : self.length] = buffer[:, :, : self.length]
        return grown


class LayerCache:
    """What one decoder layer remembers: its self attention's past and its view of the memory."""

    def __init__(self) -> None:
        self.self_attention = KVCache()
        self.cross_attention = KVCache()


class DecoderCache:
    """One `LayerCache` a layer.

    With a beam, self attention holds a row a hypothesis and cross attention a row a sentence: the
    hypotheses of a sentence (adjacent rows) share the memory's keys and values.
    """

    def __init__(self, n_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(n_layers)]

    @property
    def length(self) -> int:
        """Return the number of positions decoded so far."""
        return self.layers[0].self_attention.length

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Keep these hypotheses, in this order."""
        for layer in self.layers:
            layer.self_attention.select(rows)

    def select_memory(self, sentences: Int[Tensor, " R"]) -> None:
        """Keep the memory of these sentences, in this order."""
        for layer in self.layers:
            layer.cross_attention.select(sentences)

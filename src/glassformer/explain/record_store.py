"""The tensors of one forward pass: all of them, or as many as fit, and the slices that are asked for.

    up to 128 tokens     everything is kept
    129 … 512            one layer at a time: looking at another is another forward pass
    beyond               a window of 128 positions of everything

How a tensor is captured is `trace.py`'s business, what it means `capture/wiring.py`'s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.exactly import answer
from glassformer.explain.capture.records import Check, Record, UnknownRecord
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS
from glassformer.explain.trace import Trace, trace
from glassformer.runtime import tuned

_PART = re.compile(r"([a-z_]{1,20}):([0-9]{1,9}(?:-[0-9]{1,9}|(?:\.[0-9]{1,9})*))")


Sent: TypeAlias = Literal["f32", "i32", "u8"]
"""The element types in which tensors travel."""


@dataclass(frozen=True)
class Node:
    """What is known of a record without its value.

    Attributes:
        record: the record, with the shape of its value alone.
        sizes: of its axes. dtype: "f32", "i32" or "u8".
        low, high: smallest and largest of the finite values; None where there are none.
    """

    record: Record
    sizes: tuple[int, ...]
    dtype: Sent
    low: float | None
    high: float | None

    @staticmethod
    def of(record: Record) -> Node:
        """The facts of a record."""
        value = record.value
        low, high = _range(value)
        return Node(
            replace(record, value=torch.empty_like(value, device="meta")),
            tuple(value.shape),
            dtype_of(value),
            low,
            high,
        )


class RecordStore(Mapping[str, Record]):
    """Every record of one forward pass by id, in the order of computation; captured again where it must be.

    Args:
        model, inputs: what is called, and with what.
        lengths: tokens of each stream.
        window_start: first position shown of streams longer than 512 tokens.

    Attributes:
        nodes: facts of every record. trace: the trace, where everything is kept; else None.
        checks: of the forward pass. window: (start, end) of the positions shown of long streams, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        lengths: Mapping[str, int],
        window_start: int = 0,
    ) -> None:
        self._model, self._inputs, self._lengths = model, dict(inputs), dict(lengths)
        longest = max(lengths.values(), default=0)
        self.layered = MAX_FULL_TOKENS < longest <= MAX_LAYERED_TOKENS
        self.window: tuple[int, int] | None = None
        if longest > MAX_LAYERED_TOKENS:
            last = min(n for n in lengths.values() if n > MAX_LAYERED_TOKENS) - MAX_FULL_TOKENS
            start = min(window_start, last)
            self.window = (start, start + MAX_FULL_TOKENS)
        self._layer = ""  # the layer whose records are held, where only one is
        self._layer_records: dict[str, Record] = {}
        layers = tuple(self._layers())
        found, self._kept = self._capture(
            "*" if longest <= MAX_FULL_TOKENS else lambda id: not id.startswith(layers)
        )
        self.trace = found if longest <= MAX_FULL_TOKENS else None
        self.checks: list[Check] = found.checks
        self.nodes = {id: Node.of(record) for id, record in self._kept.items()}
        if longest > MAX_FULL_TOKENS:
            self._look_through_layers()

    def _look_through_layers(self) -> None:
        """The facts of every layer's records, one layer after the other, in the order of computation."""
        nodes, layers = self.nodes, list(self._layers())
        for layer in layers:
            _, records = self._capture(f"{layer}*")
            nodes |= {id: Node.of(record) for id, record in records.items()}
            if self.window:
                self._kept |= records
        order = ["src_embedding.", "embedding.", "encoder.", "tgt_embedding.", "decoder.", ""]
        order[2:3] = [*(x for x in layers if x.startswith("encoder")), "encoder."]
        order[-2:-1] = [*(x for x in layers if x.startswith("decoder")), "decoder."]
        rank = {id: next(i for i, prefix in enumerate(order) if id.startswith(prefix)) for id in nodes}
        self.nodes = {id: nodes[id] for id in sorted(nodes, key=rank.__getitem__)}

    def held(self, id: str) -> Record | None:
        """A record that needs no forward pass to be had; any thread may ask."""
        return self._kept.get(id) or self._layer_records.get(id)

    def __getitem__(self, id: str) -> Record:
        if id in self._kept:
            return self._kept[id]
        if id not in self.nodes:
            raise UnknownRecord(
                f"there is no tensor {id[:80]!r}", f"the last is {next(reversed(self.nodes))}"
            )
        layer = next(layer for layer in self._layers() if id.startswith(layer))
        if layer != self._layer:
            _, self._layer_records = self._capture(f"{layer}*")
            self._layer = layer
        return self._layer_records[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def _capture(self, only: str | Callable[[str], bool]) -> tuple[Trace, dict[str, Record]]:
        """One forward pass: the trace, and its records as far as they are shown."""
        with (
            tuned(next(iter(self._inputs.values())).device),
            torch.no_grad(),
            trace(self._model, only) as found,
        ):
            answer(self._model, **self._inputs)
        if self.window is None:
            return found, dict(found)
        return found, {id: self._windowed(record) for id, record in found.items()}

    def _windowed(self, record: Record) -> Record:
        """A record with its long token and key axes cut to the window."""
        value = record.value
        for dim, axis in enumerate(record.axes):
            length = self._lengths.get(axis.stream or "", 0)
            if self.window and length > MAX_LAYERED_TOKENS and value.shape[dim] == length:
                value = value.narrow(dim, self.window[0], MAX_FULL_TOKENS)
        return replace(record, value=value.clone()) if value is not record.value else record

    def _layers(self) -> Iterator[str]:
        """Beginnings of the ids of each layer."""
        for stack in ("encoder", "decoder"):
            layers = getattr(getattr(self._model, stack, None), "layers", ())
            yield from (f"{stack}.{i}." for i in range(len(layers)))


def dtype_of(value: Tensor) -> Sent:
    """How a tensor travels: "f32", "i32" or "u8"."""
    if value.dtype == torch.bool:
        return "u8"
    return "f32" if value.is_floating_point() else "i32"


def to_numpy(value: Tensor) -> np.ndarray:
    """A tensor as it travels: float32, int32 or uint8, in C order."""
    wanted: dict[str, Any] = {"f32": torch.float32, "i32": torch.int32, "u8": torch.uint8}
    return value.detach().to("cpu", wanted[dtype_of(value)]).contiguous().numpy()


def take(value: Tensor, axes: Sequence[str], part: str) -> Tensor:
    """A slice by axis names: "head:3" drops that axis, "token:0-50" keeps a range (its end not included),
    "vocab:1.5.9" keeps a list; several are joined by ";".

    Raises:
        UsageError: the slice is not written like that, or names an axis or an index that is not there.
    """
    chosen: dict[int, int | slice | list[int]] = {}
    for piece in part.split(";") if part else []:
        match = _PART.fullmatch(piece)
        if not match:
            raise UsageError(
                f"the slice {piece[:60]!r} is not understood", "write head:3, token:0-50 or vocab:1.5.9"
            )
        name, indices = match[1], match[2]
        if name not in axes:
            raise UsageError(f"there is no axis {name!r}", f"the axes are {', '.join(axes)}")
        dim = list(axes).index(name)
        if dim in chosen:
            raise UsageError(f"the axis {name!r} is sliced twice")
        chosen[dim] = _indices(name, indices, value.shape[dim])
    for dim in sorted(chosen, reverse=True):  # from the last, so that dropped axes do not move others
        which = chosen[dim]
        if isinstance(which, int):
            value = value.select(dim, which)
        elif isinstance(which, slice):
            value = value.narrow(dim, which.start, which.stop - which.start)
        else:
            value = value.index_select(dim, torch.tensor(which, device=value.device))
    return value


def _indices(name: str, text: str, size: int) -> int | slice | list[int]:
    if "-" in text:
        start, end = (int(x) for x in text.split("-"))
        if not start < end <= size:
            raise UsageError(f"{name}:{text} is not a range within {size}")
        return slice(start, end)
    numbers = [int(x) for x in text.split(".")]
    if max(numbers) >= size:
        raise UsageError(f"{name}:{max(numbers)} is not there: {name} has 0 to {size - 1}")
    return numbers if "." in text else numbers[0]


def _range(value: Tensor) -> tuple[float | None, float | None]:
    """Smallest and largest finite value."""
    if value.dtype == torch.bool:
        value = value.to(torch.uint8)
    if not value.numel():
        return None, None
    low, high = (x.item() for x in torch.aminmax(value))
    if math.isfinite(low) and math.isfinite(high):  # of a NaN both are one
        return low, high
    finite = value[value.isfinite()]
    return _range(finite)

"""A step of a forward pass, a check of it, and where in a model it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.sites import SourceLine

BLOCKED = 1e30
"""Scores below minus this are of blocked keys (`edits/apply.py`)."""


class Axis(NamedTuple):
    """An axis of a record: its name ("token", "key", "head", "feature", …), and of tokens and keys their stream."""

    name: str
    stream: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A step of a forward pass.

    Attributes:
        id: "decoder.1.cross.weights".
        site: its key in `SITES`: "weights", "norm:layer_norm"; of a step of the loss or a gradient its operation.
        op: the operation, a key of `OPERATIONS`.
        inputs: ids of the steps it was computed from, in the order of the operation's arguments.
        params: the names of parameters or buffers by role ("weight", "bias").
        attrs: the operation's constants, such as a factor or an epsilon.
        axes: the axes of `value`.
        value: the tensor, detached, without a batch axis of size 1; on the device "meta" if the numbers are not kept.
        source: the line that computes it; None where the source is not available.
        stack: "encoder", "decoder", "head", or the stream of an embedding.
        layer: the index of the layer.
        block: "self", "cross" or "ff".
        editable: whether an edit of it changes what follows: it is computed, and no mask.
        limits: the smallest and the largest finite value, of a step without its numbers; None where there is none.
    """

    id: str
    site: str
    op: str
    inputs: tuple[str, ...]
    params: dict[str, str]
    attrs: dict[str, Any]
    axes: tuple[Axis, ...]
    value: Tensor
    source: SourceLine | None = None
    stack: str = ""
    layer: int | None = None
    block: str | None = None
    editable: bool = False
    limits: tuple[float | None, float | None] = (None, None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of `value`."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Return the element type of `value`."""
        return self.value.dtype

    def without_value(self) -> Step:
        """Return the step without its numbers."""
        return replace(self, value=torch.empty_like(self.value, device="meta"), limits=_finite_range(self.value))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.value.cpu().numpy()
        return array.copy() if dtype is None and copy else array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis.name} {n}" for axis, n in zip(self.axes, self.shape, strict=True))
        expression = f"{self.op}({', '.join([*self.inputs, *self.params.values()])})"
        return f"{self.id} = {expression}: ({sizes}) {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Check:
    """A comparison of two ways to compute a value: their largest difference and its tolerance."""

    name: str
    value: float
    tolerance: float
    ok: bool
    meaning: str
    """One sentence."""


class UnknownRecord(UsageError, KeyError):
    """An error for an id that a trace does not hold."""

    def __str__(self) -> str:
        # KeyError would show the repr.
        return self.message


def _finite_range(value: Tensor) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value, of those that are finite and no blocked scores."""
    if value.dtype == torch.bool:
        value = value.to(torch.uint8)
    if not value.numel():
        return None, None
    low, high = (x.item() for x in torch.aminmax(value))
    # Where there is a NaN both are NaN.
    if math.isfinite(low) and math.isfinite(high) and low > -BLOCKED:
        return low, high
    return _finite_range(value[value.isfinite() & (value > -BLOCKED)])


BLOCKS = ("self", "cross", "ff")


@lru_cache(maxsize=4096)
def step_location(id: str, embedded: str | None = None) -> tuple[str, int | None, str | None]:
    """Return stack, layer and block from an id; `embedded` is the stream of an embedding's step."""
    parts = id.split("@")[0].split(".")
    # Ids of an ensemble begin with the member.
    parts = parts[2:] if parts[0] == "members" else parts
    layer = next((int(part) for part in parts if part.isdecimal()), None)
    block = next((part for part in parts if part in BLOCKS), None)
    stack = embedded or next((part for part in parts if part in ("encoder", "decoder")), None)
    if stack is None:
        stack = "head" if layer is None and block is None else ""
    return stack, layer, block

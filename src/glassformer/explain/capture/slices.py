"""Take slices of tensors by the names of their axes, and the form in which tensors are sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.sites import Axis, Step, WireDtype

_AXIS_SLICE = re.compile(r"([a-z_]{1,20}):([0-9]{1,9}(?:-[0-9]{1,9}|(?:\.[0-9]{1,9})*))")


def wire_dtype(value: Tensor) -> WireDtype:
    """Return the element type in which a tensor is sent."""
    if value.dtype == torch.bool:
        return "u8"
    return "f32" if value.is_floating_point() else "i32"


def to_numpy(value: Tensor) -> np.ndarray:
    """Return a tensor as it is sent: float32, int32 or uint8, in C order."""
    dtypes: dict[str, Any] = {"f32": torch.float32, "i32": torch.int32, "u8": torch.uint8}
    return value.detach().to("cpu", dtypes[wire_dtype(value)]).contiguous().numpy()


def sliced(value: Tensor, axes: Iterable[Axis], spec: str) -> np.ndarray:
    """Return a slice of a tensor with these axes as it is sent; see `take_slice`."""
    return to_numpy(take_slice(value, [axis.name for axis in axes], spec))


def take_slice(value: Tensor, axes: Sequence[str], spec: str) -> Tensor:
    """Return a slice by axis names.

    Args:
        value: the tensor.
        axes: the names of its axes.
        spec: "head:3" drops that axis, "token:0-50" keeps a range without its end, "vocab:1.5.9" keeps a list;
            several are joined by ";".
    """
    # From the last axis on, so that dropping one does not move the others.
    for dim, index in sorted(_slices(axes, value.shape, spec).items(), reverse=True):
        value = value[(slice(None),) * dim + (index,)]
    return value


def axis_indices(axes: Sequence[str], shape: Sequence[int], spec: str) -> list[list[int]]:
    """Return the indices along each axis that a slice selects, for reading and for writing; see `take_slice`."""
    chosen = _slices(axes, shape, spec)
    return [np.atleast_1d(np.arange(size)[chosen.get(dim, slice(None))]).tolist() for dim, size in enumerate(shape)]


def _slices(axes: Sequence[str], shape: Sequence[int], spec: str) -> dict[int, int | slice | list[int]]:
    """Return what a slice selects by the number of the axis."""
    chosen: dict[int, int | slice | list[int]] = {}
    for item in spec.split(";") if spec else []:
        match = _AXIS_SLICE.fullmatch(item)
        if not match:
            raise UsageError(f"the slice {item[:60]!r} is malformed", "write head:3, token:0-50 or vocab:1.5.9")
        name, indices = match[1], match[2]
        if name not in axes:
            raise UsageError(f"there is no axis {name!r}", f"the axes are {', '.join(axes)}")
        dim = list(axes).index(name)
        if dim in chosen:
            raise UsageError(f"the axis {name!r} is sliced twice")
        chosen[dim] = _indices(name, indices, shape[dim])
    return chosen


def _indices(name: str, text: str, size: int) -> int | slice | list[int]:
    if "-" in text:
        start, end = (int(x) for x in text.split("-"))
        if not start < end <= size:
            raise UsageError(f"{name}:{text} is not a range within {size}")
        return slice(start, end)
    numbers = [int(x) for x in text.split(".")]
    if max(numbers) >= size:
        raise UsageError(f"{name}:{max(numbers)} is out of range: {name} runs from 0 to {size - 1}")
    return numbers if "." in text else numbers[0]


def param_axes(step: Step, role: str) -> tuple[str, ...]:
    """Return the names of the axes of a step's parameter."""
    match step.op, role:
        case "lookup" | "padded_lookup", _:
            return ("bigram" if step.site == "bigrams" else "vocab", "feature")
        case "embedding_bag", _:
            return ("ngram", "feature")
        case "positions", _:
            return ("token", "feature")
        case "linear", "weight":
            # Tied embeddings share one table, so its axes have the same names in both uses.
            return ("vocab", "feature") if step.axes[-1].name == "vocab" else ("out", "in")
        case "linear", _:
            return ("out",)
    # The weight and bias of a norm.
    return (step.axes[-1].name,)


def get_parameter(model: nn.Module, name: str) -> Tensor:
    """Return a parameter or buffer by name, without listing all names, which takes a third of a second."""
    path, _, attribute = name.rpartition(".")
    return getattr(model.get_submodule(path), attribute)

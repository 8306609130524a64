"""Store the tensors of one forward pass, or as many as fit, and take slices of them.

    up to 128 tokens     all tensors are kept
    129 … 512            one layer at a time: reading another layer runs another forward pass

A longer text is cut to 512 tokens before it comes here (`inputs.py`).

Tensors are recorded by `trace.py`, which lists their ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from functools import cached_property, wraps
from typing import Any, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.sites import Check, Step, UnknownRecord
from glassformer.explain.request import MAX_FULL_TOKENS
from glassformer.explain.trace import Trace, nearest, trace
from glassformer.nn.attention import Tap
from glassformer.utils.device import tuned

Key = TypeVar("Key")
Result = TypeVar("Result")


def weak_cache(function: Callable[[Key], Result]) -> Callable[[Key], Result]:
    """Return the function with its results cached by weak references to its argument."""
    results: WeakKeyDictionary[Key, Result] = WeakKeyDictionary()

    @wraps(function)
    def cached(key: Key) -> Result:
        if key not in results:
            results[key] = function(key)
        return results[key]

    return cached


_AXIS_SLICE = re.compile(r"([a-z_]{1,20}):([0-9]{1,9}(?:-[0-9]{1,9}|(?:\.[0-9]{1,9})*))")

WireDtype: TypeAlias = Literal["f32", "i32", "u8"]
"""Element types in which tensors are sent."""


class RecordStore(Mapping[str, Step]):
    """The records of one forward pass by id, in order of computation; those not kept are recorded again when read.

    Attributes:
        steps: every step without its value.
        trace: the trace, where everything is kept; else None.
        checks: the checks of the forward pass.
        layered: one layer's records are kept at a time.
    """

    def __init__(
        self, model: nn.Module, inputs: Mapping[str, Any], streams: Sequence[Sized], tap: Tap | None = None
    ) -> None:
        self._tap = tap
        self._model, self._inputs = model, dict(inputs)
        self.layered = max(map(len, streams), default=0) > MAX_FULL_TOKENS
        # The layer whose records are kept, where only one is.
        self._layer = ""
        self._layer_records: dict[str, Step] = {}
        layers = tuple(self._layers())
        trace, self._kept = self._capture((lambda id: not id.startswith(layers)) if self.layered else "*")
        self.trace = None if self.layered else trace
        self.checks: list[Check] = trace.checks
        steps = {id: step.without_value() for id, step in self._kept.items()}
        for layer in layers if self.layered else ():
            steps |= {id: step.without_value() for id, step in self._capture(f"{layer}*")[1].items()}
        self.steps = {id: steps[id] for id in trace.computed}

    def __getitem__(self, id: str) -> Step:
        if id in self._kept:
            return self._kept[id]
        if id not in self.steps:
            raise UnknownRecord(f"there is no tensor {str(id)[:80]!r}", nearest(str(id), [*self.steps]))
        layer = next(layer for layer in self._layers() if id.startswith(layer))
        if layer != self._layer:
            _, self._layer_records = self._capture(f"{layer}*")
            self._layer = layer
        return self._layer_records[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def tensor(self, id: str, slice: str = "") -> np.ndarray:
        """Return the values of a step or a parameter, or a slice of them: "head:3;token:0-50", see `take_slice`."""
        held = self.held(id, slice)
        return to_numpy(take_slice(self[id].value, self._axes(id), slice)) if held is None else held

    def held(self, id: str, slice: str = "") -> np.ndarray | None:
        """Return `tensor`, or None where that needs another forward pass; safe from any thread."""
        id = id if isinstance(id, str) else str(id)
        if id in self.steps:
            step = self._kept.get(id) or self._layer_records.get(id)
            return step and to_numpy(take_slice(step.value, self._axes(id), slice))
        if id not in self.params:
            hint = nearest(str(id), [*self.steps, *self.params])
            raise UnknownRecord(f"there is no tensor or parameter {str(id)[:80]!r} in this trace", hint)
        return to_numpy(take_slice(get_parameter(self._model, id), self.params[id], slice))

    def _axes(self, id: str) -> list[str]:
        return [axis.name for axis in self.steps[id].axes]

    @cached_property
    def params(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the parameters that the steps use, with those of their axes."""
        found: dict[str, tuple[str, ...]] = {}
        for step in self.steps.values():
            for role, name in step.params.items():
                if name:
                    found.setdefault(name, _param_axes(step, role))
        return found

    @property
    def n_layers(self) -> dict[str, int]:
        """Return the number of layers of each stack, in order of computation."""
        return {step.stack: step.layer + 1 for step in self.steps.values() if step.layer is not None}

    def _capture(self, only: str | Callable[[str], bool]) -> tuple[Trace, dict[str, Step]]:
        """Run one forward pass; return the trace, and its records."""
        device = next(iter(self._inputs.values())).device
        with tuned(device), torch.no_grad(), trace(self._model, only, tap=self._tap) as records:
            exact_forward(self._model, **self._inputs)
        return records, dict(records)

    def _layers(self) -> Iterator[str]:
        """Yield the prefix of the ids of each layer."""
        for stack in ("encoder", "decoder"):
            layers = getattr(getattr(self._model, stack, None), "layers", ())
            yield from (f"{stack}.{i}." for i in range(len(layers)))


def wire_dtype(value: Tensor) -> WireDtype:
    """Return the element type in which a tensor is sent."""
    if value.dtype == torch.bool:
        return "u8"
    return "f32" if value.is_floating_point() else "i32"


def to_numpy(value: Tensor) -> np.ndarray:
    """Return a tensor as it is sent: float32, int32 or uint8, in C order."""
    dtypes: dict[str, Any] = {"f32": torch.float32, "i32": torch.int32, "u8": torch.uint8}
    return value.detach().to("cpu", dtypes[wire_dtype(value)]).contiguous().numpy()


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


def _param_axes(step: Step, role: str) -> tuple[str, ...]:
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

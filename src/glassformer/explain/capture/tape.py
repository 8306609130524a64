"""Keep the steps of a forward pass, and the step that each tensor came from.

`attach.py` reports the steps.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.sites import SITES, SourceLine, source_of
from glassformer.nn.attention import Tap

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
        site: its key in `SITES`: "weights", "residual:pre"; of a step of the loss or a gradient its operation.
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
        editable: whether an edit of it changes what follows: the pass uses its numbers, and it is no mask.
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
COPIED_AXES = ("vocab", "class")
"""Last axes of the model's output, which is copied, since its caller may change it in place."""
_builtin_id = id


class Origin(NamedTuple):
    """The step that a tensor came from: its id, and the stream of tokens along its second axis."""

    id: str
    stream: str


class Tape:
    """The steps of a forward pass in order of computation, and the origin of every tensor.

    Args:
        modules: all modules by path, as from `named_modules(remove_duplicate=False)`.
        only: wildcards of ids, or a predicate; other steps are neither kept nor copied.
        tap: called with the id and a copy of the tensor of each step of the pass; returns the tensor to use instead.

    Attributes:
        steps: the steps kept so far, by id.
        computed: the ids of all steps, kept or not, in order.
        edited: the ids of the steps whose tensor the tap replaced, in order.
        call: the arguments of the last call of the model.
        output: the output of that call.
        stack_end: the origin of the output of the last encoder or decoder.
        padding: the id of the last padding mask.
    """

    def __init__(
        self,
        modules: Sequence[tuple[str, nn.Module]],
        only: Sequence[str] | Callable[[str], bool],
        tap: Tap | None = None,
    ) -> None:
        self.steps: dict[str, Step] = {}
        self.computed: dict[str, None] = {}
        self.only = only
        self.tap = tap
        # A tap that names the steps it wants is not called for others, which would be copied and compared in vain.
        self._tapped: Collection[str] | None = getattr(tap, "ids", None)
        self.edited: dict[str, None] = {}
        self._keep_all = not callable(only) and "*" in only
        self.call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.output: Tensor | None = None
        self.stack_end: Origin | None = None
        self.padding: str | None = None
        self._modules = modules
        self._latest: Tensor | None = None
        self._copied: tuple[weakref.ref[Tensor], Tensor] | None = None
        self._origins: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}

    def add(
        self,
        id: str,
        site: str,
        inputs: Sequence[str],
        value: Tensor,
        axes: Sequence[Axis],
        *,
        params: nn.Module | Mapping[str, Tensor | None] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Origin:
        """Keep a step if `only` selects it, and remember its tensor; return its origin.

        `axes` are those of the tensor without the batch, `params` parameters by role, or a module with only these.
        """
        origin = self.remember(value, Origin(id, next((axis.stream for axis in axes if axis.stream), "")))
        self.computed[id] = None
        if not self.wants(id):
            return origin
        if id in self.steps:
            hint = "rename one of them: trace(model, names={path: name})"
            raise UsageError(f"two modules of the model would both record {id!r}", hint)
        kept = value.detach() if value.requires_grad else value
        if site == "ids" or axes[-1].name in COPIED_AXES:
            kept = kept.clone()
            self._copied = weakref.ref(value), kept
        if kept.dim() > len(axes):
            kept, axes = (kept, [Axis("batch"), *axes]) if kept.shape[0] > 1 else (kept.select(0, 0), axes)
        if kept.dtype in (torch.bfloat16, torch.float16):
            kept = kept.float()
        of = params._parameters if isinstance(params, nn.Module) else params or {}
        kind = SITES[site]
        stack, layer, block = step_location(id, origin.stream if kind.stream else None)
        self.steps[id] = Step(
            id=id,
            site=site,
            op=kind.op,
            inputs=tuple(inputs),
            params={role: self._names.get(_builtin_id(p), "") for role, p in of.items() if p is not None},
            attrs=dict(attrs or {}),
            axes=tuple(axes),
            value=kept,
            source=source_of(site),
            stack=stack,
            layer=layer,
            block=block,
            editable=kind.editable and kind.op != "mask",
        )
        return origin

    def apply_tap(self, id: str, value: Tensor) -> Tensor:
        """Return the tensor to use for a step, as replaced by the tap."""
        if self.tap is None or (self._tapped is not None and id.partition("@")[0] not in self._tapped):
            return value
        # A copy, since the tensor may be a view of steps already recorded.
        replaced = self.tap(id, value.clone())
        if not isinstance(replaced, Tensor):
            raise UsageError(f"the tap must return a tensor, got {type(replaced).__name__} for {id!r}")
        if (replaced.shape, replaced.dtype, replaced.device) != (value.shape, value.dtype, value.device):
            was, now = (f"{tuple(x.shape)} {x.dtype} on {x.device}" for x in (value, replaced))
            raise UsageError(f"the tap must return a tensor like {id!r}, {was}, got {now}")
        if not torch.equal(replaced, value):
            self.edited[id] = None
        return replaced

    def copy(self, value: Tensor) -> Tensor:
        """Return a copy of a tensor: that of its step, if it was copied."""
        return self._copied[1] if self._copied and self._copied[0]() is value else value.detach().clone()

    def move_to_end(self, id: str) -> None:
        """Move a step and its inputs to the end, next to the later step that uses it."""
        step = self.steps.get(id)
        for name in [*step.inputs, id] if step else []:
            if name in self.steps:
                self.steps[name] = self.steps.pop(name)
                self.computed[name] = self.computed.pop(name)

    def wants(self, id: str) -> bool:
        """Return whether a step with this id is kept."""
        if callable(self.only):
            return self.only(id)
        return self._keep_all or any(fnmatchcase(id, pattern) for pattern in self.only)

    def unmatched(self) -> list[str]:
        """Return the wildcards that no step matched, if any steps were computed."""
        if callable(self.only) or self._keep_all or not self.computed:
            return []
        return [pattern for pattern in self.only if not any(fnmatchcase(id, pattern) for id in self.steps)]

    def remember(self, tensor: Tensor, origin: Origin) -> Origin:
        """Remember the origin of a tensor, as long as it exists.

        The latest tensor is kept alive, since only a view of it may be passed on.
        """
        self._latest = tensor
        self._origins[tensor.data_ptr()] = (weakref.ref(tensor), origin)
        return origin

    def origin(self, tensor: Tensor, default_id: str, stream: str = "text") -> Origin:
        """Return the origin of a tensor, or of a reshaped view of it.

        A tensor from no recorded step becomes a step with op "input" and the default id.
        """
        known = self._origins.get(tensor.data_ptr())
        if known is not None:
            source = known[0]()
            if source is not None and source.numel() == tensor.numel():
                return known[1]
        axes = [Axis("token", stream), Axis("feature")] if tensor.dim() > 2 else [Axis("feature")]
        return self.add(default_id, "input", (), tensor, axes)

    @cached_property
    def _names(self) -> dict[int, str]:
        """Return the name of each parameter and buffer by its `id`, ten times as fast as torch's two methods."""
        names: dict[int, str] = {}
        for path, module in self._modules:
            prefix = f"{path}." if path else ""
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                names.setdefault(id(tensor), prefix + name)
        return names


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

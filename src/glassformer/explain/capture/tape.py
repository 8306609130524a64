"""The tape a forward pass is recorded on: which steps to keep, and which step a tensor came from.

It knows nothing of how modules compute; `wiring.py` tells it what was computed. During the pass it only
notes; a note becomes a `Record` when somebody reads it, so that watching disturbs the pass little.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.records import Axis, Record
from glassformer.explain.capture.sites import SITES
from glassformer.explain.capture.source_lines import source_of
from glassformer.nn.attention import Tap

BLOCKS = ("self", "cross", "ff")
OWNED_BY_THE_CALLER = ("vocab", "class")
"""Last axes of what a model returns; its caller may change it in place."""
_id = id  # the builtin, where `id` is a step's


class Origin(NamedTuple):
    """Where a tensor came from: a record's id, and the stream of tokens along its second axis."""

    id: str
    stream: str


class Note(NamedTuple):
    """What a `Record` will be made of: the arguments of `Tape.add`."""

    site: str
    inputs: Sequence[str]
    params: nn.Module | Mapping[str, Tensor | None] | None
    attrs: Mapping[str, Any] | None
    axes: Sequence[Axis]
    value: Tensor


class Tape:
    """Steps in the order they are computed, and the origin of every tensor passed on.

    Args:
        modules: every module by path, as `named_modules(remove_duplicate=False)` gives them.
        only: wildcards, or what says it of an id; steps that match none are neither kept nor copied.
        tap: called with the id and a copy of the tensor of each step on the way; what it returns is used from there.
    """

    def __init__(
        self,
        modules: Sequence[tuple[str, nn.Module]],
        only: Sequence[str] | Callable[[str], bool],
        tap: Tap | None = None,
    ) -> None:
        self.notes: dict[str, Note] = {}
        """The steps kept so far, by id."""
        self.left_out: dict[str, None] = {}
        """The ids of the others, in order."""
        self.only = only
        self.tap = tap
        self.edited: dict[str, None] = {}
        """The ids of the steps whose tensor the tap replaced by another, in order."""
        self._everything = not callable(only) and "*" in only
        self.call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        """What the whole model was called with, the last time."""
        self.answer: Tensor | None = None
        """What it answered."""
        self.stream_end: Origin | None = None
        """What the last encoder or decoder gave."""
        self.padding: str | None = None
        """The id of the last padding mask."""
        self._modules = modules
        self._records: dict[str, Record] = {}
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
        """Keep this step if it is wanted, and remember its tensor. Returns its origin.

        Args:
            site: a key of `SITES`.
            axes: without the batch; a value with one axis more has a batch in front.
            params: by role; a module stands for its own parameters.

        Raises:
            UsageError: there is a step of that id already: the names of two modules are the same.
        """
        origin = self.passes(value, Origin(id, _stream(axes)))
        if not self.wants(id):
            self.left_out[id] = None
            return origin
        if id in self.notes:
            hint = "give one of them a name of its own: trace(model, names={path: name})"
            raise UsageError(f"two modules of the model would both record {id!r}", hint)
        kept = value.detach() if value.requires_grad else value
        if site == "ids" or axes[-1].name in OWNED_BY_THE_CALLER:
            kept = kept.clone()
            self._copied = weakref.ref(value), kept
        self.notes[id] = Note(site, inputs, params, attrs, axes, kept)
        return origin

    def tapped(self, id: str, value: Tensor) -> Tensor:
        """What is used in place of this step's tensor: what the tap makes of it.

        Raises:
            UsageError: the tap returned no tensor of the same shape, type and device.
        """
        if self.tap is None:
            return value
        made = self.tap(id, value.clone())  # it may be a view of steps that are recorded already
        if not isinstance(made, Tensor):
            raise UsageError(f"the tap returned {type(made).__name__} for {id!r}", "return a tensor")
        if (made.shape, made.dtype, made.device) != (value.shape, value.dtype, value.device):
            was, now = (f"{tuple(x.shape)} {x.dtype} on {x.device}" for x in (value, made))
            raise UsageError(f"{id!r} is {was}, and the tap returned {now}", "return one like it")
        if not torch.equal(made, value):
            self.edited[id] = None
        return made

    def copy(self, value: Tensor) -> Tensor:
        """A copy that nobody else changes: the one that is kept already, where there is one."""
        return self._copied[1] if self._copied and self._copied[0]() is value else value.detach().clone()

    def put_off(self, id: str) -> None:
        """Tell of a step, and of those it was computed from, after all others so far: what is computed early may
        be read with what comes later."""
        note = self.notes.get(id)
        for step in [*note.inputs, id] if note else []:
            if step in self.notes:
                self.notes[step] = self.notes.pop(step)

    def record(self, id: str) -> Record:
        """The record of a step that was kept: the same one each time.

        Raises:
            KeyError: no step of that id was kept.
        """
        return self._records.get(id) or self._records.setdefault(id, self._make(id, self.notes[id]))

    def _make(self, id: str, note: Note) -> Record:
        value, axes = note.value, tuple(note.axes)
        if value.dim() > len(axes):
            batched = value.shape[0] > 1
            value, axes = (value, (Axis("batch"), *axes)) if batched else (value.select(0, 0), axes)
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        site = SITES[note.site]
        embedded = _stream(axes) if site.stream else None
        stack, layer, block = _place(id, embedded)
        params = note.params._parameters if isinstance(note.params, nn.Module) else note.params or {}
        named = {role: self._names.get(_id(p), "") for role, p in params.items() if p is not None}
        return Record(
            id,
            site.op,
            tuple(note.inputs),
            named,
            dict(note.attrs or {}),
            axes,
            value,
            source_of(note.site),
            stack,
            layer,
            block,
        )

    def wants(self, id: str) -> bool:
        """Whether a step of that id is kept."""
        if callable(self.only):
            return self.only(id)
        return self._everything or any(fnmatchcase(id, pattern) for pattern in self.only)

    def unmatched(self) -> list[str]:
        """Wildcards that no step matched, where steps were computed."""
        if callable(self.only) or self._everything or not (self.notes or self.left_out):
            return []
        return [pattern for pattern in self.only if not any(fnmatchcase(id, pattern) for id in self.notes)]

    def passes(self, tensor: Tensor, origin: Origin) -> Origin:
        """Remember where this tensor came from, for as long as it lives.

        The latest one is kept alive: its view may be passed on where it is not itself.
        """
        self._latest = tensor
        self._origins[tensor.data_ptr()] = (weakref.ref(tensor), origin)
        return origin

    def origin(self, tensor: Tensor, otherwise: str, stream: str = "text") -> Origin:
        """Where this tensor, or a reshaped view of it, came from.

        One that came from none of the recorded steps becomes a record of its own, with op "input".
        """
        known = self._origins.get(tensor.data_ptr())
        if known is not None:
            made = known[0]()
            if made is not None and made.numel() == tensor.numel():
                return known[1]
        axes = [Axis("token", stream), Axis("feature")] if tensor.dim() > 2 else [Axis("feature")]
        return self.add(otherwise, "input", (), tensor, axes)

    @cached_property
    def _names(self) -> dict[int, str]:
        """The name of each parameter and buffer of the model by its `id`."""
        return _names_of_tensors(self._modules)


def _stream(axes: Sequence[Axis]) -> str:
    """The stream of the first axis that has one."""
    for axis in axes:
        if axis.stream:
            return axis.stream
    return ""


def _names_of_tensors(modules: Sequence[tuple[str, nn.Module]]) -> dict[int, str]:
    """The name of each parameter and buffer by its `id`, in one walk: torch's own two take ten times as long."""
    names: dict[int, str] = {}
    for path, module in modules:
        prefix = f"{path}." if path else ""
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            names.setdefault(id(tensor), prefix + name)
    return names


@lru_cache(maxsize=4096)
def _place(id: str, embedded: str | None) -> tuple[str, int | None, str | None]:
    """Stack, layer and block, read off the id; `embedded` is the stream of an embedding's step."""
    parts = id.split("@")[0].split(".")
    parts = parts[2:] if parts[0] == "members" else parts  # of an ensemble
    layer = next((int(part) for part in parts if part.isdecimal()), None)
    block = next((part for part in parts if part in BLOCKS), None)
    stack = embedded or next((part for part in parts if part in ("encoder", "decoder")), None)
    if stack is None:
        stack = "head" if layer is None and block is None else ""
    return stack, layer, block

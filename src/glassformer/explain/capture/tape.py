"""The tape a forward pass is recorded on: which records to keep, and which record a tensor came from.

It knows nothing of modules; `wiring.py` tells it what was computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glassformer.errors import UsageError
from glassformer.explain.capture.records import Axis, Record
from glassformer.explain.capture.source_lines import source_of

BLOCKS = ("self", "cross", "ff")
EMBEDDING = ("ids", "lookup", "embedding", "positions")
"""First parts of the source kinds of an embedding's steps."""
OWNED_BY_THE_CALLER = ("vocab", "class")
"""Last axes of what a model returns; its caller may change it in place."""


class Origin(NamedTuple):
    """Where a tensor came from: a record's id, and the stream of tokens along its second axis."""

    id: str
    stream: str


class Tape:
    """Records in the order they are computed, and the origin of every tensor passed on.

    Args:
        modules: every module by path, as `named_modules(remove_duplicate=False)` gives them.
        only: wildcards; steps that match none are neither kept nor copied.
    """

    def __init__(self, modules: Sequence[tuple[str, nn.Module]], only: Sequence[str]) -> None:
        self.records: dict[str, Record] = {}
        self.only = tuple(only)
        self._everything = "*" in self.only
        self.call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        """What the whole model was called with, the last time."""
        self.answer: Tensor | None = None
        """What it answered."""
        self.stream_end: Origin | None = None
        """What the last encoder or decoder gave."""
        self.padding: str | None = None
        """The id of the last padding mask."""
        self._names = _names_of_tensors(modules)
        self._latest: Tensor | None = None
        self._origins: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}

    def add(
        self, id: str, op: str, inputs: Sequence[str], value: Tensor, axes: Sequence[Axis], *,
        source: str, params: Mapping[str, Tensor | None] | None = None, attrs: Mapping[str, Any] | None = None,
    ) -> Origin:  # fmt: skip
        """Keep this step if it is wanted, and remember its tensor. Returns its origin.

        Args:
            axes: without the batch; a value with one axis more has a batch in front.
            source: a kind in `source_lines.LINES`.

        Raises:
            UsageError: there is a record of that id already: the names of two modules are the same.
        """
        stream = next((axis.stream for axis in axes if axis.stream), "")
        origin = self.passes(value, Origin(id, stream))
        if self.wants(id):
            if id in self.records:
                hint = "give one of them a name of its own: trace(model, names={path: name})"
                raise UsageError(f"two modules of the model would both record {id!r}", hint)
            value = value.detach() if value.requires_grad else value
            if op == "ids" or axes[-1].name in OWNED_BY_THE_CALLER:
                value = value.clone()
            if value.dim() > len(axes):
                batched = value.shape[0] > 1
                value, axes = (value, [Axis("batch"), *axes]) if batched else (value.select(0, 0), axes)
            if value.dtype in (torch.bfloat16, torch.float16):
                value = value.float()
            stack, layer, block = _place(id, stream if source.split(".")[0] in EMBEDDING else None)
            named = {role: self.name_of(p) for role, p in (params or {}).items() if p is not None}
            self.records[id] = Record(
                id, op, tuple(inputs), named, dict(attrs or {}), tuple(axes), value, source_of(source),
                stack, layer, block,
            )  # fmt: skip
        return origin

    def wants(self, id: str) -> bool:
        """Whether a step of that id is kept."""
        return self._everything or any(fnmatchcase(id, pattern) for pattern in self.only)

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
        return self.add(otherwise, "input", (), tensor, axes, source="")

    def name_of(self, parameter: Tensor) -> str:
        """The name of a parameter or buffer in the model; "" if it is not the model's."""
        return self._names.get(id(parameter), "")


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
    layer = next((int(part) for part in parts if part.isdecimal()), None)
    block = next((part for part in parts if part in BLOCKS), None)
    stack = embedded or next((part for part in parts if part in ("encoder", "decoder")), None)
    if stack is None:
        stack = "head" if layer is None and block is None else ""
    return stack, layer, block

"""One call of a part of a model: the ids of its steps, and how each is handed to the tape.

What a step is made of stands in `sites.py`; here it is put together with the call that it happened in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from glassformer.explain.capture.records import Axis
from glassformer.explain.capture.sites import SITES
from glassformer.explain.capture.tape import Tape


class Told(NamedTuple):
    """A step that was told: its id, and the tensor that the forward pass uses from there."""

    id: str
    value: Tensor


class Call:
    """One call of a part: makes the ids of its steps."""

    def __init__(self, name: str, n: int) -> None:
        self.prefix = f"{name}." if name else ""
        self.suffix = f"@{n}" if n > 1 else ""

    def id(self, step: str) -> str:
        """ "decoder.1.cross" and "q" make "decoder.1.cross.q", in the second call "decoder.1.cross.q@2"."""
        return f"{self.prefix}{step}{self.suffix}"


class Part:
    """One call of a part, which tells the tape of its steps: what each is made of stands in `SITES`.

    Args:
        call: makes the ids.
        streams: of the axes along which tokens run, by the axis' name in `SITES`.

    Attributes:
        known: ids of inputs that are no steps of this call, by the name they have in `SITES`; None: not there.
        told: the steps that this call has told so far, by name; an input that is none of them is not there, as the
            projection of keys that were kept from an earlier call.
    """

    def __init__(self, tape: Tape, call: Call, streams: Mapping[str, str]) -> None:
        self.tape, self.call, self.streams = tape, call, streams
        self.known: dict[str, str | None] = {}
        self.told: set[str] = set()

    def tell(
        self,
        key: str,
        value: Tensor,
        *,
        name: str | None = None,
        params: nn.Module | Mapping[str, Tensor | None] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Told:
        """A step happened. Where `SITES` says that an edit could act, the tape's tap may answer with another tensor.

        Args:
            key: of `SITES`. name: of the step, where it is not the key's own.
            params, attrs: as `Tape.add` takes them.
        """
        site = SITES[key]
        id = self.call.id(name or key.partition(":")[0])
        if site.edit:
            value = self.tape.tapped(id, value)
        self.record(key, id, value, params=params, attrs=attrs)
        return Told(id, value)

    def record(
        self,
        key: str,
        id: str,
        value: Tensor,
        *,
        params: nn.Module | Mapping[str, Tensor | None] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell of a step that no tap is to see, or has seen already."""
        site = SITES[key]
        inputs = [
            self.known.get(wanted) or (self.call.id(wanted) if wanted in self.told else None) for wanted in site.inputs
        ]
        axes = [Axis("token" if axis == "memory" else axis, self.streams.get(axis)) for axis in site.axes]
        if site.op == "mask":
            value = value.squeeze(1) if value.dim() > 3 and value.shape[1] == 1 else value
            axes = axes if value.dim() > 3 else axes[1:]  # the same for all heads
        self.told.add(key.partition(":")[0])
        self.tape.add(id, key, [known for known in inputs if known], value, axes, params=params, attrs=attrs)

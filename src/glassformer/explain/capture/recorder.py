"""Record the steps of one module call on the tape, as described in `sites.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from glassformer.explain.capture.records import Axis
from glassformer.explain.capture.sites import SITES
from glassformer.explain.capture.tape import Tape

Params = nn.Module | Mapping[str, Tensor | None] | None


class RecordedStep(NamedTuple):
    """A recorded step: its id, and the tensor that the forward pass uses from there."""

    id: str
    value: Tensor


class ModuleCall:
    """One call of a module, which determines the ids of its steps.

    Args:
        name: the module's name in ids.
        n: the number of the call, counted from 1.
    """

    def __init__(self, name: str, n: int) -> None:
        self.prefix = f"{name}." if name else ""
        self.suffix = f"@{n}" if n > 1 else ""

    def id(self, step: str) -> str:
        """Return the id of a step: "decoder.1.cross.q", in the second call "decoder.1.cross.q@2"."""
        return f"{self.prefix}{step}{self.suffix}"


class CallRecorder:
    """Records the steps of one module call.

    Args:
        tape: the tape to record on.
        call: determines the ids.
        streams: the stream of each token axis, by the axis' name in `SITES`.

    Attributes:
        inputs: ids of inputs from outside this call, by their name in `SITES`; None where there is none.
        recorded: names of the steps recorded so far. An input that is neither of these is omitted, like the key
            projection when keys come from a cache.
    """

    def __init__(self, tape: Tape, call: ModuleCall, streams: Mapping[str, str]) -> None:
        self.tape, self.call, self.streams = tape, call, streams
        self.inputs: dict[str, str | None] = {}
        self.recorded: set[str] = set()

    def record(
        self,
        key: str,
        value: Tensor,
        *,
        name: str | None = None,
        params: Params = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> RecordedStep:
        """Record a step. Where `SITES` allows an edit, the tape's tap may replace its tensor.

        Args:
            key: the step's key in `SITES`.
            value: its tensor.
            name: its name in the id, by default the key without its variant.
            params: as in `Tape.add`.
            attrs: as in `Tape.add`.
        """
        id = self.call.id(name or key.partition(":")[0])
        if SITES[key].edit:
            value = self.tape.apply_tap(id, value)
        self.add(key, id, value, params=params, attrs=attrs)
        return RecordedStep(id, value)

    def add(
        self, key: str, id: str, value: Tensor, *, params: Params = None, attrs: Mapping[str, Any] | None = None
    ) -> None:
        """Record a step without the tap."""
        site = SITES[key]
        inputs = [
            self.inputs.get(name) or (self.call.id(name) if name in self.recorded else None) for name in site.inputs
        ]
        axes = [Axis("token" if axis == "memory" else axis, self.streams.get(axis)) for axis in site.axes]
        if site.op == "mask":
            value = value.squeeze(1) if value.dim() > 3 and value.shape[1] == 1 else value
            # Without a head axis where all heads have the same mask.
            axes = axes if value.dim() > 3 else axes[1:]
        self.recorded.add(key.partition(":")[0])
        self.tape.add(id, key, [input for input in inputs if input], value, axes, params=params, attrs=attrs)

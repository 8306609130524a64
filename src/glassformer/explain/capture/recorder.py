"""Record the steps of one module call on the tape, as described in `sites.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.records import Axis
from glassformer.explain.capture.sites import SITES
from glassformer.explain.capture.tape import Tape

Params = nn.Module | Mapping[str, Tensor | None] | None


class CallRecorder:
    """Records the steps of one call of a module.

    Attributes:
        streams: the stream of each token axis, by the axis' name in `SITES`.
        inputs: ids of inputs from outside this call, by their name in `SITES`; None where there is none.
        recorded: names of the steps recorded so far. An input that is neither of these is omitted, like the key
            projection when keys come from a cache.
    """

    def __init__(self, tape: Tape, name: str, n: int = 1) -> None:
        self.tape = tape
        self._prefix, self._suffix = (f"{name}." if name else ""), (f"@{n}" if n > 1 else "")
        self.streams: dict[str, str] = {}
        self.inputs: dict[str, str | None] = {}
        self.recorded: set[str] = set()

    def id(self, step: str) -> str:
        """Return the id of a step: "decoder.1.cross.q", in the second call "decoder.1.cross.q@2"."""
        return f"{self._prefix}{step}{self._suffix}"

    def take(self, name: str, x: Tensor, step: str, stream: str = "text") -> str:
        """Take a tensor from outside as an input; return its stream.

        A tensor that no recorded step computed becomes the step of this name, of this stream.
        """
        origin = self.tape.origin(x, self.id(step), stream)
        self.inputs[name] = origin.id
        return origin.stream

    def record(
        self,
        key: str,
        value: Tensor,
        *,
        name: str | None = None,
        params: Params = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Record a step by its key in `SITES`; return the tensor that the pass uses from there, perhaps by a tap."""
        id = self.id(name or key.partition(":")[0])
        if SITES[key].editable:
            value = self.tape.apply_tap(id, value)
        self.add(key, id, value, params=params, attrs=attrs)
        return value

    def add(
        self, key: str, id: str, value: Tensor, *, params: Params = None, attrs: Mapping[str, Any] | None = None
    ) -> None:
        """Record a step without the tap."""
        site = SITES[key]
        inputs = [self.inputs.get(name) or (self.id(name) if name in self.recorded else None) for name in site.inputs]
        axes = [Axis("token" if axis == "memory" else axis, self.streams.get(axis)) for axis in site.axes]
        if site.op == "mask":
            value = value.squeeze(1) if value.dim() > 3 and value.shape[1] == 1 else value
            # Without a head axis where all heads have the same mask.
            axes = axes if value.dim() > 3 else axes[1:]
        self.recorded.add(key.partition(":")[0])
        self.tape.add(id, key, [input for input in inputs if input], value, axes, params=params, attrs=attrs)

"""What is kept of one step of a forward pass: its value, what it was computed from, and where in the source.

Records are plain data. Who makes them is in `wiring.py`, when in `trace.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UsageError


class Axis(NamedTuple):
    """One axis of a record: what runs along it ("token", "key", "head", "feature", …) and, for tokens
    and keys, which stream of tokens ("text", "source" or "target")."""

    name: str
    stream: str | None = None


@dataclass(frozen=True)
class SourceLine:
    """The line of this package that computes a record."""

    file: str
    """Relative to the package: "nn/attention.py"."""
    line: int
    """Number of the first line of `code`, from 1."""
    mark: int
    """Number of the line that does it, from 1."""
    code: str
    """That line with a few around it, not indented."""

    @property
    def marked(self) -> str:
        """The text of the marked line."""
        return self.code.splitlines()[self.mark - self.line].strip()


@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One captured step.

    Attributes:
        id: "decoder.1.cross.weights".
        op: the operation, one of those listed in `wiring.py`.
        inputs: ids of the records it was computed from, in the order of the operation.
        params: role ("weight", "bias") to the name of a parameter or buffer of the model.
        attrs: the operation's constants: a factor, an epsilon, a kind.
        axes: what each axis of `value` is.
        value: the tensor itself, detached; without its batch axis when the batch is one.
        source: the line that computes it, None where the source is not at hand.
        stack: "encoder", "decoder", "head", or the stream of an embedding.
        layer: 0-based. block: "self", "cross" or "ff".
    """

    id: str
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `value`."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The element type of `value`."""
        return self.value.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.value.cpu().numpy()
        return array.copy() if dtype is None and copy else array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis.name} {n}" for axis, n in zip(self.axes, self.shape, strict=True))
        made = f"{self.op}({', '.join([*self.inputs, *self.params.values()])})"
        return f"{self.id} = {made}: ({sizes}) {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Check:
    """A comparison of two ways to compute the same: how far apart they are, and how far they may be."""

    name: str
    value: float
    tolerance: float
    ok: bool
    meaning: str
    """One sentence."""


class UnknownRecord(UsageError, KeyError):
    """A trace holds no record of that id."""

    def __str__(self) -> str:
        return self.message  # KeyError would show its repr

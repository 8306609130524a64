"""The text of an edit: a step, a slice of it, and what becomes of the slice.

decoder.1.cross.context[head:2]=0          this head writes nothing
encoder.0.ff.hidden[hidden:311]*0.5        this neuron at half
encoder.0.state[token:3]=B                 the same state of a second text
encoder.0.self.context[head:2]=mean        this head writes what it writes on average
encoder.0.self.scores[head:3;key:0]=blocked   this head may not attend to the first token
encoder.1.state=skip                       this layer adds nothing
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.request import MAX_EDIT_TEXT


@dataclass(frozen=True)
class EditKind:
    """A kind of edit.

    Attributes:
        written: what follows the step and its slice; NUMBER stands for a number.
        change: returns the new numbers of the slice, given the present ones and the number of the edit; None where they
            come from elsewhere: a second text, the means of reference texts, the state before the layer.
        decimals: the step must hold decimal numbers.
    """

    written: str
    change: Callable[[Tensor, float], Tensor] | None = None
    decimals: bool = True


KINDS = {
    "set": EditKind("=NUMBER", torch.full_like, decimals=False),
    "scale": EditKind("*NUMBER", torch.mul),
    "B": EditKind("=B"),
    "mean": EditKind("=mean"),
    "blocked": EditKind("=blocked", lambda x, _: torch.full_like(x, torch.finfo(x.dtype).min / 2)),
    "skip": EditKind("=skip"),
}
"""What can become of the numbers of a step, by name."""

NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WORDS = "|".join(kind.written[1:] for kind in KINDS.values() if "NUMBER" not in kind.written)
_EDIT = re.compile(
    rf"(?P<step>[A-Za-z0-9_.*]+)(?:\[(?P<slice>[a-z0-9_:;.\-]*)\])?"
    rf"(?:=(?P<word>{_WORDS})(?:\[(?P<other>[a-z0-9_:;.\-]*)\])?|=(?P<value>{NUMBER})|\*(?P<factor>{NUMBER}))"
)
MAX_NUMBER = 1e4
"""Largest number of an edit, in either direction."""
HINT = "write a step, a slice and =0, =NUMBER, *NUMBER, =mean, =B, =blocked or =skip: decoder.1.cross.context[head:2]=0"


@dataclass(frozen=True)
class Edit:
    """One change of one step.

    Attributes:
        step: id of the step, an alias (`sites.py`), or several by `*`, which stands for one part of an id.
        slice: part of the step by axis names, as in `record_store.take_slice`; all of it if empty.
        kind: a key of `KINDS`: "set" to a number, "scale" by a factor, "B" for the second text's values, "mean" for the
            mean over reference texts and their tokens (`reference.py`), "blocked" for scores that no weight may follow,
            "skip" for the state before the layer.
        number: the number of "set" and "scale".
        other: slice of the second text's step, by default the same.
    """

    step: str
    slice: str
    kind: str
    number: float = 0.0
    other: str = ""

    @staticmethod
    def parse(text: str) -> Edit:
        """Return the edit that a text describes."""
        if len(text) > MAX_EDIT_TEXT:
            raise UsageError(f"an edit has at most {MAX_EDIT_TEXT} characters, this one {len(text):,}", HINT)
        match = _EDIT.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"the edit {text[:80]!r} is malformed", HINT)
        number = float(match["value"] or match["factor"] or 0.0)
        if not math.isfinite(number) or abs(number) > MAX_NUMBER:
            raise UsageError(f"the number of an edit must be from {-MAX_NUMBER:g} to {MAX_NUMBER:g}, not {number:g}")
        kind = match["word"] or ("set" if match["value"] is not None else "scale")
        if match["other"] is not None and kind != "B":
            raise UsageError(f"{text[:80]!r}: a second slice belongs to =B", HINT)
        return Edit(match["step"], match["slice"] or "", kind, number, match["other"] or "")

    def at(self, step: str, slice: str) -> Edit:
        """Return the same change of another step."""
        return replace(self, step=step, slice=slice)

    def __str__(self) -> str:
        part, other = (f"[{slice}]" if slice else "" for slice in (self.slice, self.other))
        return f"{self.step}{part}{KINDS[self.kind].written.replace('NUMBER', _written(self.number))}{other}"


def _written(number: float) -> str:
    """Return a number as short as it can be read again."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)

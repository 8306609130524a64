"""The text of an edit: a step, a slice of it, and what becomes of the slice; and the steps that it names.

decoder.1.cross.context[head:2]=0          this head writes nothing
encoder.0.ff.hidden[hidden:311]*0.5        this neuron at half
encoder.0.state[token:3]=B                 the same state of a second text
encoder.0.self.context[head:2]=mean        this head writes what it writes on average
encoder.0.self.scores[head:3;key:0]=blocked   this head may not attend to the first token
encoder.1.state=skip                       this layer adds nothing

Aliases: `X.head3` for head 3 of an attention, cut before its output projection; `X.neuron311` for an inner feature of a
feed-forward block; `X.branch` for what a block adds to the residual stream; `encoder.0.state` for the stream after a
layer; `memory` for the encoder's output; `embedding` (in a translator `source` and `target`) for what the first layer
reads. Indices count from 0, as in ids.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.sites import Step
from glassformer.explain.request import MAX_EDIT_TEXT


@dataclass(frozen=True)
class EditKind:
    """A kind of edit.

    Attributes:
        written: what follows the step and its slice; NUMBER stands for a number.
        change: returns the new numbers of the slice, given the present ones and the number of the edit; None where they
            come from elsewhere: a second text, the means of reference texts, the state before the layer.
    """

    written: str
    change: Callable[[Tensor, float], Tensor] | None = None


KINDS = {
    "set": EditKind("=NUMBER", torch.full_like),
    "scale": EditKind("*NUMBER", torch.mul),
    "B": EditKind("=B"),
    "mean": EditKind("=mean"),
    # Above the scores of masked keys: a row without another key has its weight here, from where it is taken.
    "blocked": EditKind("=blocked", lambda x, _: torch.full_like(x, torch.finfo(x.dtype).min / 4)),
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
HINT = f"write a step, a slice and {', '.join(kind.written for kind in KINDS.values())}: decoder.1.cross.head2=0"


@dataclass(frozen=True)
class Edit:
    """One change of one step.

    Attributes:
        step: id of the step, an alias (`sites.py`), or several by `*`, which stands for one part of an id.
        slice: part of the step by axis names, as in `take_slice`; all of it if empty.
        kind: a key of `KINDS`: "set" to a number, "scale" by a factor, "B" for the second text's values, "mean" for the
            mean over reference texts and their tokens (`apply.py`), "blocked" for scores that no weight may follow,
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
        if not isinstance(text, str):
            raise UsageError(f"an edit is written as text, not as {type(text).__name__}", HINT)
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

    def __str__(self) -> str:
        part, other = (f"[{slice}]" if slice else "" for slice in (self.slice, self.other))
        return f"{self.step}{part}{KINDS[self.kind].written.replace('NUMBER', _written(self.number))}{other}"


def _written(number: float) -> str:
    """Return a number as short as it can be read again."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


_PARTS = (
    (re.compile(r"(.+\.(?:self|cross))\.head([0-9]+)"), "context", "head"),
    (re.compile(r"(.+\.ff)\.neuron([0-9]+)"), "hidden", "hidden"),
)
_BRANCH = re.compile(r"(.+\.(?:self|cross|ff))\.branch")
_STATE = re.compile(r"(encoder|decoder)\.([0-9]+|\*)\.state")


def resolve(edit: Edit, records: Mapping[str, Step]) -> list[Edit]:
    """Return the edit for each step that it names, in the order of the records."""
    step, slice = _without_alias(edit, records)
    found = [id for id in records if _matches(step.split("."), id.split("."))]
    if not found:
        near = difflib.get_close_matches(edit.step, records, n=3, cutoff=0.4)
        raise UsageError(f"no step is called {edit.step!r}", f"the nearest are {', '.join(near or list(records)[:3])}")
    if masks := [id for id in found if records[id].op == "mask"]:
        raise UsageError(
            f"{masks[0]} cannot be edited, as heads share it", "block scores: encoder.0.self.scores[key:0]=blocked"
        )
    for id in found:
        if not records[id].editable:
            usable = [other for other, record in records.items() if record.editable]
            near = difflib.get_close_matches(id, usable, n=3, cutoff=0.4)
            message = f"{id} is only recorded, and the forward pass does not use it"
            raise UsageError(message, f"steps that can be edited are {', '.join(near or usable[:3])}")
    if edit.kind == "blocked" and any(records[id].site != "scores" for id in found):
        raise UsageError(f"only scores can be blocked, not {found[0]}", "as in: encoder.0.self.scores[key:0]=blocked")
    if edit.kind == "skip" and (not _STATE.fullmatch(edit.step) or slice):
        raise UsageError(f"only a whole layer can be skipped, not {edit.step}", "as in: encoder.1.state=skip")
    return [replace(edit, step=id, slice=slice) for id in found]


def _without_alias(edit: Edit, records: Mapping[str, Step]) -> tuple[str, str]:
    """Return the step and the slice of an edit, with an alias replaced."""
    for pattern, step, axis in _PARTS:
        if match := pattern.fullmatch(edit.step):
            return f"{match[1]}.{step}", ";".join(filter(None, [f"{axis}:{match[2]}", edit.slice]))
    if match := _BRANCH.fullmatch(edit.step):
        return f"{match[1]}.out", edit.slice
    if match := _STATE.fullmatch(edit.step):
        return f"{match[1]}.{match[2]}.ff.{'residual' if _is_pre_norm(records) else 'norm'}", edit.slice
    if edit.step == "memory":
        return _memory(records), edit.slice
    if edit.step in ("embedding", "source", "target"):
        return embedded(records, "text" if edit.step == "embedding" else edit.step), edit.slice
    return edit.step, edit.slice


def _matches(wanted: list[str], parts: list[str]) -> bool:
    """Return whether the parts of an id fit those of a step, in which `*` stands for any characters."""
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))


def state_before(id: str, records: Mapping[str, Step]) -> str:
    """Return the id of the residual stream that a layer reads, given the stream that it writes."""
    stack, layer, block, step = id.split(".")
    if int(layer):
        return f"{stack}.{int(layer) - 1}.{block}.{step}"
    first = f"{stack}.0.self.residual"
    streams = [axis.stream for axis in records[first].axes if axis.stream]
    return embedded(records, streams[0])


def embedded(records: Mapping[str, Step], stream: str) -> str:
    """Return the id of the last step of a stream's embedding."""
    found = [id for id, record in records.items() if record.stack == stream and record.editable]
    if not found:
        raise UsageError(f"this model has no {stream} embedding", "use embedding, source or target")
    return found[-1]


def _is_pre_norm(records: Iterable[str]) -> bool:
    """Return whether norms precede their blocks: then a layer ends in a sum, else in a norm."""
    first = next((id for id in records if id.endswith((".self.norm", ".self.residual"))), "")
    return first.endswith(".norm")


def _memory(records: Mapping[str, Step]) -> str:
    """Return the id of the encoder's output."""
    ends = [id for id in records if id == "encoder.norm" or re.fullmatch(r"encoder\.\d+\.ff\.(norm|residual)", id)]
    if not ends:
        raise UsageError("this model has no encoder, so no memory", "name a state, as in decoder.0.state")
    return ends[-1]

"""Find the steps that an edit names, and refuse those that the forward pass does not use.

Aliases: `X.head3` for head 3 of an attention, cut before its output projection; `X.neuron311` for an inner feature of a
feed-forward block; `X.branch` for what a block adds to the residual stream; `encoder.0.state` for the stream after a
layer; `memory` for the encoder's output; `embedding` (in a translator `source` and `target`) for what the first layer
reads. Indices count from 0, as in ids.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from glassformer.errors import UsageError
from glassformer.explain.capture.records import Step
from glassformer.explain.edits.grammar import Edit

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
    return [edit.at(id, slice) for id in found]


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
    return len(wanted) == len(parts) and all(map(_fits, wanted, parts))


def _fits(wanted: str, part: str) -> bool:
    """Return whether a part fits: each piece between two `*` at the first place where it occurs, without going back."""
    first, *pieces = wanted.split("*")
    if not pieces:
        return wanted == part
    *inner, last = pieces
    if not part.startswith(first):
        return False
    at = len(first)
    for piece in inner:
        found = part.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return part.endswith(last) and len(part) - len(last) >= at


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
    ids = list(records)
    first = next((id for id in ids if id.endswith((".self.norm", ".self.residual"))), "")
    return first.endswith(".norm")


def _memory(records: Mapping[str, Step]) -> str:
    """Return the id of the encoder's output."""
    ends = [id for id in records if id == "encoder.norm" or re.fullmatch(r"encoder\.\d+\.ff\.(norm|residual)", id)]
    if not ends:
        raise UsageError("this model has no encoder, so no memory", "name a state, as in decoder.0.state")
    return ends[-1]

"""Choose the tensors of a saved page, those most likely viewed first, and store them in base64.

Values are 16-bit floats where they fit; what the optimizer keeps of its last step is stored exactly.
"""

from __future__ import annotations

import base64
import math
from typing import TypedDict

import numpy as np

from glassformer.explain.explanation import Explanation
from glassformer.explain.learn.backward import is_gradient
from glassformer.explain.learn.learning import LearningStore
from glassformer.explain.page.manifest import SizedAxis, TraceNode, manifest
from glassformer.explain.page.responses import Packing, pack
from glassformer.explain.record_store import get_parameter
from glassformer.utils.formatting import counted

MAX_LOGITS_BYTES = 2_000_000
"""Larger logits are left out; the file has the most probable tokens of each position."""
RANKS = {
    **dict.fromkeys(("ids", "mask", "softmax", "pool", "pin_zero"), 0),
    **dict.fromkeys(("lookup", "padded_lookup", "scale"), 1),
    "dot": 3,
}
"""Priority of operations, most viewed first; products are last, as they differ from scores only by a factor."""
OTHER_RANK, GRADIENT_RANK = 2, 4
UPDATES_BYTES = 3_000_000
"""Maximum bytes of what the optimizer keeps of its last step, as 32-bit floats: smaller parameters first."""
SMALLEST_F16 = 2.0**-9
"""Gradients that are all smaller are stored as 32-bit floats: 16 bits would leave few digits of them."""
NAMING_BYTES = 200
"""Reserved for the id, type and shape of a tensor."""
SUFFIX = {"f16": 2, "f32": 4, "i32": 4, "u8": 1}


class PackedTensor(TypedDict):
    """A tensor in a file: little-endian, in base64."""

    dtype: Packing
    shape: list[int]
    data: str


def pack_tensors(
    explanations: list[Explanation], room: int, with_parameters: int, dropped: list[str]
) -> dict[str, dict[str, PackedTensor]]:
    """Return `SavedPageData.tensors`: as many as fit into `room` bytes, in order of priority.

    Parameters are added up to a file of `with_parameters` bytes. `dropped` gets a sentence on what is left out.
    """
    packed: dict[str, dict[str, PackedTensor]] = {e.id: {} for e in explanations}
    left_out: list[str] = []
    used = 0

    def add(e: Explanation, name: str, axes: list[SizedAxis], dtype: str, limit: int, missed: list[str]) -> None:
        nonlocal used
        smallest = _size(axes) * SUFFIX["f16" if dtype == "f32" else dtype] * 4 // 3
        if used + smallest + NAMING_BYTES <= limit:
            # From these the page computes the loss of an answer, to 5 digits.
            exact = e.learning is not None and (_size(axes) == 1 or name == "loss.each")
            tensor = packed_tensor(e.records.tensor(name), exact=exact, tiny=is_gradient(name))
            size = len(tensor["data"]) + len(name) + NAMING_BYTES
            if used + size <= limit:  # it may have been too large for 16 bits, and have taken 32
                packed[e.id][name] = tensor
                used += size
                return
        missed.append(name)

    for explanation in explanations:
        same = set() if explanation.edited is None else set(explanation.edited.same)  # found under the first trace
        all_nodes = manifest(explanation)["nodes"] + manifest(explanation)["gradients"]
        kept = [n for n in all_nodes if n["id"] not in same]
        nodes = [n for n in kept if not _is_large_logits(n["axes"])]
        if len(nodes) < len(kept):
            dropped.append(
                "Logits of the whole vocabulary are left out: this file has the 50 most probable tokens of each "
                "position, and the served page has all."
            )
        for n in sorted(nodes, key=_rank):  # in computing order within a rank
            add(explanation, n["id"], n["axes"], n["dtype"], room, left_out)
    updates = 0
    for explanation in explanations:
        updates += pack_updates(explanation, packed[explanation.id], min(UPDATES_BYTES, room - used - updates), dropped)
    used, with_parameters = used + updates, with_parameters + updates
    limited = with_parameters < room
    # Where the whole file is full, parameters are among the tensors left out.
    left_out_parameters: list[str] = [] if limited else left_out
    seen: set[tuple[str, int]] = set()
    for explanation in explanations:
        params = manifest(explanation)["params"]
        for name, param in sorted(params.items(), key=lambda item: _size(item[1]["axes"])):
            weights = name, get_parameter(explanation.subject.model, name).data_ptr()
            if weights not in seen and name not in packed[explanation.id]:  # the page finds it under the first
                seen.add(weights)
                add(explanation, name, param["axes"], "f32", min(room, with_parameters), left_out_parameters)
    dropped += _what_lacks(left_out, left_out_parameters if limited else [])
    return packed


def _what_lacks(left_out: list[str], left_out_parameters: list[str]) -> list[str]:
    """Return a sentence each on the tensors and the parameters that were left out."""
    sentences = []
    if left_out_parameters:
        sentences.append(
            f"{_left_out(len(left_out_parameters), 'parameters')}, so that steps computed with them cannot be "
            "recomputed here: glassformer explain RUN TEXT -o page.html --parameters stores them, if they fit in 20 MB."
        )
    if left_out:
        shown = ", ".join(left_out[:6]) + (f" and {len(left_out) - 6} more" if len(left_out) > 6 else "")
        sentences.append(
            f"{_left_out(len(left_out), 'tensors')}, to limit the size of the file: {shown}. Steps computed "
            "from them cannot be checked here; glassformer explain shows them."
        )
    return sentences


def _left_out(n: int, units: str) -> str:
    return f"{counted(n, units)} {'is' if n == 1 else 'are'} left out"


def pack_updates(explanation: Explanation, packed: dict[str, PackedTensor], room: int, dropped: list[str]) -> int:
    """Store what the optimizer keeps of its last step, and return how many bytes that takes.

    Of each parameter that fits all is stored, exactly, so that the page can recompute its update.
    """
    if not isinstance(explanation.records, LearningStore) or explanation.records.learner is None:
        return 0
    used, missed = 0, 0
    params = manifest(explanation)["params"]
    for name, param in sorted(params.items(), key=lambda item: _size(item[1]["axes"])):
        parts = explanation.records.update_of(name)
        size = len(parts) * (_size(param["axes"]) * SUFFIX["f32"] * 4 // 3 + len(name) + NAMING_BYTES)
        if used + size > room:
            missed += 1
            continue
        packed |= {part: packed_tensor(explanation.records.tensor(part), exact=True) for part in parts}
        used += size
    if missed:
        of = counted(missed, "parameters")
        dropped.append(f"Learn: the updates of {of} are left out, to limit the size of the file.")
    return used


def _rank(node: TraceNode) -> int:
    return GRADIENT_RANK if is_gradient(node["id"]) else RANKS.get(node["op"], OTHER_RANK)


def packed_tensor(values: np.ndarray, *, exact: bool = False, tiny: bool = False) -> PackedTensor:
    """Return values as they stand in a file: 16-bit floats where they fit, unless all are `tiny` or wanted exactly."""
    largest = float(np.abs(values).max(initial=0.0)) if tiny else 1.0
    data, dtype = pack(values, "f32" if exact or 0 < largest < SMALLEST_F16 else "f16")
    return {"dtype": dtype, "shape": list(values.shape), "data": base64.b64encode(data).decode("ascii")}


def _is_large_logits(axes: list[SizedAxis]) -> bool:
    return any(axis["name"] == "vocab" for axis in axes) and _size(axes) * 2 > MAX_LOGITS_BYTES


def _size(axes: list[SizedAxis]) -> int:
    return math.prod(axis["size"] for axis in axes)

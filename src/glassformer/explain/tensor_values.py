"""The numbers of an explanation: of a step of the forward pass or of a parameter, whole or a slice of them."""

from __future__ import annotations

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.manifest import manifest, param
from glassformer.explain.record_store import take, to_numpy


def tensor(explanation: ExplanationData, id: str, slice: str = "") -> np.ndarray:
    """The values of a node or a parameter, or a slice of them; within a window, counted from its start.

    Args:
        id: as in the manifest's "nodes" or "params".
        slice: "head:3", "token:0-50", "vocab:1.5.9", joined by ";": see `record_store.take`.

    Raises:
        UsageError: there is no such tensor, or no such slice of it.
    """
    found = held(explanation, id, slice)
    if found is not None:
        return found
    record = explanation.records[id]
    return to_numpy(take(record.value, [axis.name for axis in record.axes], slice))


def held(explanation: ExplanationData, id: str, slice: str = "") -> np.ndarray | None:
    """`tensor`, or None where it would take another forward pass; any thread may ask.

    Raises:
        UsageError: as `tensor` does.
    """
    if id in explanation.records.nodes:
        record = explanation.records.held(id)
        return record and to_numpy(take(record.value, [axis.name for axis in record.axes], slice))
    params = manifest(explanation)["params"]
    if id not in params:
        raise UsageError(f"there is no tensor or parameter {id[:80]!r} in this trace")
    axes = [axis["name"] for axis in params[id]["axes"]]
    return to_numpy(take(param(explanation.subject.model, id), axes, slice))

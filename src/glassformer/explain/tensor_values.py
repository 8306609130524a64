"""Read tensors of an explanation: a step of the forward pass or a parameter, whole or a slice of it."""

from __future__ import annotations

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.manifest import get_parameter, manifest
from glassformer.explain.record_store import take_slice, to_numpy


def get_tensor(explanation: Explanation, id: str, slice: str = "") -> np.ndarray:
    """Return the values of a node or a parameter, or a slice of them.

    Args:
        explanation: the explanation that holds the tensor.
        id: a key of the manifest's "nodes" or "params".
        slice: "head:3", "token:0-50", "vocab:1.5.9", joined by ";": see `record_store.take_slice`.

    Raises:
        UsageError: there is no such tensor, or no such slice of it.
    """
    captured = get_captured_tensor(explanation, id, slice)
    if captured is not None:
        return captured
    record = explanation.records[id]
    return to_numpy(take_slice(record.value, [axis.name for axis in record.axes], slice))


def get_captured_tensor(explanation: Explanation, id: str, slice: str = "") -> np.ndarray | None:
    """Return what `get_tensor` does, or None where that needs another forward pass; safe from any thread.

    Raises:
        UsageError: as in `get_tensor`.
    """
    if id in explanation.records.nodes:
        record = explanation.records.captured(id)
        return record and to_numpy(take_slice(record.value, [axis.name for axis in record.axes], slice))
    params = manifest(explanation)["params"]
    if id not in params:
        raise UsageError(f"there is no tensor or parameter {id[:80]!r} in this trace")
    axes = [axis["name"] for axis in params[id]["axes"]]
    return to_numpy(take_slice(get_parameter(explanation.subject.model, id), axes, slice))

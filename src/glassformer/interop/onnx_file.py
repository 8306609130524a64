"""What an ONNX graph of an export cannot hold, found in its bytes before onnxruntime sees them.

A tensor may lie in another file, whose path the graph names; and a graph inside a node is a loop or a branch. The
writer makes neither, so that both are refused. The numbers of fields are those of `onnx.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from glassformer.errors import CheckpointError

_INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "unknown", 25: "unknown"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "unknown", 10: "tensor", 11: "unknown", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "unknown"},
}
"""Messages inside messages, by the number of their field; "unknown" are those that no export holds."""
_DATA_LOCATION = 14
_LENGTH_DELIMITED = 2
MAX_FIELDS = 4_000_000
"""Most fields of a graph, of which a node has some ten."""
_WIDTHS = {1: 8, 5: 4}
"""Bytes of a number of a fixed width, by its type."""


def check_graph(data: bytes, where: Path) -> None:
    """Refuse a graph that names other files, holds functions or graphs inside nodes, or is no graph.

    Raises:
        CheckpointError: it is refused.
    """
    waiting = [("model", 0, len(data))]
    n_graphs = n_fields = 0
    while waiting:
        kind, start, end = waiting.pop()
        try:
            for field, first, last in _fields(data, start, end):
                n_fields += 1
                if field == 0 or n_fields > MAX_FIELDS:
                    raise ValueError("no field has the number 0, and no graph so many")
                inner = _INNER[kind].get(field)
                if inner == "unknown" or (kind == "tensor" and field == _DATA_LOCATION and first):
                    message = f"{where} names another file, or holds functions or graphs inside of nodes"
                    raise CheckpointError(message, "export the run again")
                if inner is not None:
                    n_graphs += inner == "graph"
                    waiting.append((inner, first, last))
        except (IndexError, ValueError) as error:
            raise CheckpointError(f"{where} is not an ONNX graph", "export the run again") from error
    if n_graphs != 1:
        raise CheckpointError(f"{where} holds {n_graphs} graphs", "export the run again")


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field of a message, and the start and the end of its content, or its value and 0."""
    while at < end:
        key, at = _number(data, at, end)
        kind = key & 7
        if kind == 0:
            value, at = _number(data, at, end)
            yield key >> 3, value, 0
        elif kind == _LENGTH_DELIMITED:
            size, at = _number(data, at, end)
            if size > end - at:
                raise ValueError("a field is longer than its message")
            yield key >> 3, at, at + size
            at += size
        else:
            at += _WIDTHS.get(kind, end)
            yield key >> 3, 0, 0
    if at != end:
        raise ValueError("a message ends inside a field")


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and the index behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number has no end")

"""Predict with onnxruntime (https://onnxruntime.ai). No torch is imported; the graph is that of `onnx_writer.py`.

A tensor may lie in another file, whose path the graph names; and a graph inside a node is a loop or a branch. The
writer makes neither, so that both are refused. The numbers of fields are those of `onnx.proto`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import UsageError
from glassformer.interop.engine import library, not_exported
from glassformer.interop.export_facts import MAX_BYTES, ExportFacts
from glassformer.interop.protobuf import fields
from glassformer.text.ngrams import LENGTHS, MOST
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils import cpu_threads
from glassformer.utils.safe_read import read_bytes

SPELLING = "spelling.json"


def spelling_json(tokenizer: Tokenizer) -> bytes:
    """Return the content of `spelling.json`.

    `ngrams` are in the order of their numbers, of which the first is `first`; numbers 1 to 256 are the bytes of a word
    without a listed n-gram, and 0 is padding. `lengths` are those of n-grams, and a word has at most `most`.
    """
    assert tokenizer.ngrams is not None
    ngrams = tokenizer.ngrams.ngrams
    data = {"first": len(tokenizer.ngrams) - len(ngrams), "lengths": LENGTHS, "most": MOST}
    data |= {"lowercase": tokenizer.lowercases, "ngrams": ngrams}
    return (json.dumps(data, ensure_ascii=False) + "\n").encode("utf-8")


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
MAX_FIELDS = 4_000_000
"""Most fields of a graph, of which a node has some ten."""


def check_graph(data: bytes, where: Path) -> None:
    """Refuse a graph that names other files, holds functions or graphs inside nodes, or is no graph.

    Raises:
        CheckpointError: it is refused.
    """
    waiting: list[tuple[str, Any]] = [("model", memoryview(data))]
    n_graphs = n_fields = 0
    while waiting:
        kind, message = waiting.pop()
        try:
            for field, value in fields(message):
                n_fields += 1
                if field == 0 or n_fields > MAX_FIELDS:
                    raise ValueError("no field has the number 0, and no graph so many")
                inner = _INNER[kind].get(field)
                if inner == "unknown" or (kind == "tensor" and field == _DATA_LOCATION and value):
                    raise not_exported(f"{where} names another file, or holds functions or graphs inside of nodes")
                if inner is not None:
                    n_graphs += inner == "graph"
                    waiting.append((inner, value))
        except (IndexError, TypeError, ValueError) as error:
            raise not_exported(f"{where} is not an ONNX graph") from error
    if n_graphs != 1:
        raise not_exported(f"{where} holds {n_graphs} graphs")


def load_engine(path: Path, facts: ExportFacts, tokenizer: Tokenizer, device: str) -> OnnxEngine:
    """Return the engine of an exported folder.

    Raises:
        CheckpointError: the library cannot read a graph.
        UsageError: it is not installed, or cannot compute on this device.
    """
    onnxruntime = library("an export for onnx", "onnx", "onnxruntime")
    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UsageError("this onnxruntime cannot compute on cuda", "install onnxruntime-gpu, or use --device cpu")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = cpu_threads.n_threads(), 3
    # Threads that wait without spinning: a step is short, and other work may want the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    [name] = [name for name in facts.required_files if name.endswith(".onnx")]
    file = path / name
    data = read_bytes(file, MAX_BYTES[".onnx"])
    check_graph(data, file)
    try:
        return OnnxEngine(onnxruntime.InferenceSession(data, options, providers=[provider]), tokenizer)
    except Exception as error:  # the library raises classes of its own that share no base
        raise not_exported(f"onnxruntime cannot read {file}: {error}") from error


class OnnxEngine:
    """The graph of a model."""

    def __init__(self, graph: Any, tokenizer: Tokenizer) -> None:
        self._graph, self._t = graph, tokenizer

    def outputs(self, ids: list[int], words: Sequence[str] = ()) -> np.ndarray:
        inputs = {"input_ids": np.array([ids or [self._t.pad_id]]), "attention_mask": np.array([[1] * len(ids) or [0]])}
        if (known := self._t.ngrams) is not None:
            rows = [[], *(known.lookup(word) if word else [] for word in dict.fromkeys(words))]
            index = {word: i for i, word in enumerate(dict.fromkeys(words), start=1)}
            most = max(1, *map(len, rows)) if words else 1
            inputs["ngram_index"] = np.array([[index[word] for word in words] or [0]])
            inputs["ngrams"] = np.array([[*row, *[0] * (most - len(row))] for row in rows])
        return self._graph.run(None, {name: x.astype(np.int64) for name, x in inputs.items()})[0][0]

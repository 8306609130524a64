"""The manifest of an explanation: everything a page is told at once, in the form of web/src/types.ts.

It holds no tensors, only what they are called, how large they are and what made them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.records import Check
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.lengths import FULL, LAYERED
from glassformer.explain.predictions import Prediction
from glassformer.explain.tensors import Node, Records

FORMAT = "glassformer-trace-1"


def node_json(node: Node) -> dict[str, Any]:
    """`TraceNode` of types.ts."""
    r = node.record
    return {
        "id": r.id,
        "op": r.op,
        "inputs": list(r.inputs),
        "params": dict(r.params),
        "attrs": dict(r.attrs),
        "axes": [
            {"name": axis.name, "size": size} | ({"stream": axis.stream} if axis.stream else {})
            for axis, size in zip(r.axes, node.sizes, strict=True)
        ],
        "dtype": node.dtype,
        "min": node.low,
        "max": node.high,
        "source": None if r.source is None else asdict(r.source),
        "stack": r.stack,
        "layer": r.layer,
        "block": r.block,
    }


def params_json(model: nn.Module, task: str, nodes: Iterable[Node]) -> dict[str, dict[str, Any]]:
    """`params` of a manifest: every parameter that a node names, with its axes."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for role, name in node.record.params.items():
            if name and name not in found:
                axes = zip(param_axes(node, role, task), param(model, name).shape, strict=True)
                found[name] = {"axes": [{"name": axis, "size": size} for axis, size in axes]}
    return found


def param_axes(node: Node, role: str, task: str) -> tuple[str, ...]:
    """What runs along the axes of a node's parameter."""
    record = node.record
    match record.op, role:
        case "lookup", _:
            return ("bigram" if record.id.endswith("bigrams") else "vocab", "feature")
        case "bag", _:
            return ("ngram", "feature")
        case "positions", _:
            return ("token", "feature")
        case "linear", "weight":
            # One table reads and writes where embeddings are tied, so both call its axes alike.
            return ("vocab", "feature") if record.id == "logits" and task != "classify" else ("out", "in")
        case "linear", _:
            return ("out",)
    return (record.axes[-1].name,)  # a norm's weight and bias


def param(model: nn.Module, name: str) -> Tensor:
    """A parameter or buffer by name.

    Raises:
        KeyError: the model has none of this name.
    """
    return {**dict(model.named_buffers()), **dict(model.named_parameters())}[name]


def omitted(records: Records, lengths: Mapping[str, int]) -> list[dict[str, str]]:
    """What is not shown of a long text, and why, each in a sentence."""
    longest = max(lengths.values(), default=0)
    if records.window is not None:
        start, end = records.window
        return [
            {
                "what": f"of streams of more than {LAYERED} tokens only positions {start} to {end - 1} are shown",
                "why": f"the longest has {longest} tokens, and its matrices grow with the square of that; "
                "move the window to see others",
            },
            {
                "what": "numbers cannot be recomputed here where they sum over positions outside the window",
                "why": "those positions were not sent",
            },
        ]
    if records.layered:
        return [
            {
                "what": "one layer's tensors are held at a time",
                "why": f"the text has {longest} tokens, more than {FULL}: looking at another layer runs the "
                "model again, with the same numbers",
            }
        ]
    return []


def answer_of(
    task: str, predictions: list[Prediction], decode: DecodeLog | None, written: str
) -> dict[str, str]:
    """The answer in a line, and how sure of it the model is."""
    if task == "classify":
        best = predictions[0].top[0]
        percent = 100 * math.exp(best.log_prob)
        return {"headline": best.piece, "detail": ">99.9%" if percent > 99.9 else f"{percent:.1f}%"}
    assert decode is not None
    best = decode.hypotheses[0]
    sure = f"{best.log_prob:.3g}".replace("-", "−")
    ending = "" if best.finished else ", cut before its end"
    n = len(best.ids) + best.finished
    tokens = "1 token" if n == 1 else f"{n} tokens"
    return {"headline": written, "detail": f"log-probability {sure} over {tokens}{ending}"}


def checks_json(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """`checks` of a manifest."""
    return [asdict(check) for check in checks]

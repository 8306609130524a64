"""The manifest of an explanation: everything a page is told at once.

It holds no tensors, only what they are called, how large they are and what made them. The classes here are also the
types the page is compiled against (`typescript.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from torch import Tensor, nn

from glassformer.explain.answers import Answer
from glassformer.explain.capture.records import Axis, Check, SourceLine
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.ensemble_member import EnsembleMember
from glassformer.explain.explanation_data import ExplanationData, Omitted
from glassformer.explain.predictions import Prediction
from glassformer.explain.preparing.prepared import Wrote
from glassformer.explain.record_store import Node, Sent
from glassformer.explain.request import TraceRequest
from glassformer.explain.run_info import ModelInfo, model_info
from glassformer.explain.streams import Stream
from glassformer.explain.weak_cache import weak_cache

Json = dict[str, Any]


class SizedAxis(TypedDict):
    """One axis of a tensor; `stream` is that of the tokens along it."""

    name: Annotated[str, "AxisName"]
    size: int
    stream: NotRequired[Annotated[str, "StreamName"]]


class TraceNode(TypedDict):
    """A step of the forward pass, without its values."""

    id: str
    """"encoder.0.self.weights", "decoder.1.cross.q", "embedding.sum", "logits": see explain/capture/wiring.py."""
    op: Annotated[str, "Op"]
    inputs: list[str]
    params: dict[str, str]
    """Role ("weight", "bias") to parameter id."""
    attrs: dict[str, float | str | bool]
    axes: list[SizedAxis]
    dtype: Sent
    min: float | None
    """Of the finite values; null when the tensor is empty."""
    max: float | None
    source: Annotated[Json, SourceLine] | None
    stack: Annotated[str, 'StreamName | "encoder" | "decoder" | "head"']
    """source, target, text: that stream's embedding."""
    layer: int | None
    """From 0."""
    block: Annotated[str, '"self" | "cross" | "ff"'] | None


class Param(TypedDict):
    """A parameter that some node names."""

    axes: list[SizedAxis]


class Manifest(TypedDict):
    """Everything a page is told about one forward pass at once. Tensors are fetched one at a time, by node or parameter id."""

    format: Literal["glassformer-trace-1"]
    id: str
    model: ModelInfo
    request: Annotated[Json, TraceRequest]
    streams: list[Annotated[Json, Stream]]
    """In this order: ["text"], or ["source", "target"]."""
    answer: Answer
    together: Annotated[Json, EnsembleMember] | None
    """Of an ensemble: which of its models this is; `answer` is that of all. null: a single model."""
    nodes: list[TraceNode]
    """In the order they are computed."""
    params: dict[str, Param]
    predictions: list[Annotated[Json, Prediction]]
    decode: Annotated[Json, DecodeLog]
    wrote: Annotated[Json, Wrote]
    checks: list[Annotated[Json, Check]]
    omitted: list[Omitted]
    warnings: list[str]
    """"3 of 9 tokens are unknown to the model", "cut to 256 tokens"."""
    window: Annotated[list[int], "[number, number]"] | None
    """Beyond 512 tokens only these positions, from a start to an end not included, of every token and key axis are shown; null: all."""
    seconds: float


@weak_cache
def manifest(explanation: ExplanationData) -> Manifest:
    """The manifest, ready for JSON; made once, so not to be changed."""
    nodes = explanation.records.nodes.values()
    return {
        "format": "glassformer-trace-1",
        "id": explanation.id,
        "model": model_info(explanation.subject, explanation.request.checkpoint),
        "request": explanation.request.to_json(),
        "streams": [stream.to_json() for stream in explanation.streams],
        "answer": explanation.answer,
        "together": explanation.together and explanation.together.to_json(),
        "nodes": [node_json(node) for node in nodes],
        "params": params_json(explanation.subject.model, nodes),
        "predictions": [prediction.to_json() for prediction in explanation.predictions],
        "decode": explanation.decode.to_json(),
        "wrote": asdict(explanation.wrote),
        "checks": [asdict(check) for check in explanation.checks],
        "omitted": explanation.omitted,
        "warnings": explanation.warnings,
        "window": None if explanation.window is None else list(explanation.window),
        "seconds": explanation.seconds,
    }


def node_json(node: Node) -> TraceNode:
    """A node of the manifest."""
    r = node.record
    return {
        "id": r.id,
        "op": r.op,
        "inputs": list(r.inputs),
        "params": dict(r.params),
        "attrs": dict(r.attrs),
        "axes": [_sized(axis, size) for axis, size in zip(r.axes, node.sizes, strict=True)],
        "dtype": node.dtype,
        "min": node.low,
        "max": node.high,
        "source": None if r.source is None else asdict(r.source),
        "stack": r.stack,
        "layer": r.layer,
        "block": r.block,
    }


def _sized(axis: Axis, size: int) -> SizedAxis:
    told: SizedAxis = {"name": axis.name, "size": size}
    return {**told, "stream": axis.stream} if axis.stream else told


def params_json(model: nn.Module, nodes: Iterable[Node]) -> dict[str, Param]:
    """`params` of a manifest: every parameter that a node names, with its axes."""
    found: dict[str, Param] = {}
    for node in nodes:
        for role, name in node.record.params.items():
            if name and name not in found:
                axes = zip(param_axes(node, role), param(model, name).shape, strict=True)
                found[name] = {"axes": [{"name": axis, "size": size} for axis, size in axes]}
    return found


def param_axes(node: Node, role: str) -> tuple[str, ...]:
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
            return ("vocab", "feature") if record.axes[-1].name == "vocab" else ("out", "in")
        case "linear", _:
            return ("out",)
    return (record.axes[-1].name,)  # a norm's weight and bias


def param(model: nn.Module, name: str) -> Tensor:
    """A parameter or buffer by name.

    Raises:
        AttributeError: the model has none of this name.
    """
    path, _, own = name.rpartition(".")
    return getattr(
        model.get_submodule(path), own
    )  # to look through all names for each takes a third of a second

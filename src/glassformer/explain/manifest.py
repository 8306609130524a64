"""Build the manifest of an explanation: all that the page needs at once, as JSON.

It holds no tensor values, only the id, size and inputs of each tensor. The classes here are also the types that the
page is compiled against (`typescript.py`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from torch import nn

from glassformer.explain.answers import Answer, EnsembleMember
from glassformer.explain.capture.records import Axis, Check, SourceLine, Step
from glassformer.explain.capture.sites import SITES
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.effects import WhatIf
from glassformer.explain.explanation import Explanation, Omitted
from glassformer.explain.inputs.encoded_text import GenerationInfo
from glassformer.explain.predictions import Prediction
from glassformer.explain.record_store import RecordStore, WireDtype, get_parameter, wire_dtype
from glassformer.explain.request import TraceRequest
from glassformer.explain.run_info import ModelInfo, model_info
from glassformer.explain.streams import Stream
from glassformer.explain.weak_cache import weak_cache

Json = dict[str, Any]


class SizedAxis(TypedDict):
    """One axis of a tensor; `stream` names the tokens along it."""

    name: Annotated[str, "AxisName"]
    size: int
    stream: NotRequired[Annotated[str, "StreamName"]]


class TraceNode(TypedDict):
    """A step of the forward pass, without its values."""

    id: str
    """"encoder.0.self.weights", "decoder.1.cross.q", "embedding.sum", "logits": see explain/capture/attach.py."""
    site: str
    """What kind of step it is, a key of `SITES`: "weights", "residual:pre"."""
    editable: bool
    """Whether the forward pass uses its numbers, so that an edit of them changes what follows."""
    op: Annotated[str, "Op"]
    inputs: list[str]
    params: dict[str, str]
    """Parameter id by role ("weight", "bias")."""
    attrs: dict[str, float | str | bool]
    axes: list[SizedAxis]
    dtype: WireDtype
    min: float | None
    """Minimum of the finite values; null for an empty tensor."""
    max: float | None
    source: Annotated[Json, SourceLine] | None
    stack: Annotated[str, 'StreamName | "encoder" | "decoder" | "head"']
    """source, target, text: the embedding of that stream."""
    layer: int | None
    """Counted from 0."""
    block: Annotated[str, '"self" | "cross" | "ff"'] | None


class Param(TypedDict):
    """A parameter that some node uses."""

    axes: list[SizedAxis]


class Manifest(TypedDict):
    """All that the page needs to know of one forward pass.

    Tensors are fetched one at a time, by node or parameter id.
    """

    format: Literal["glassformer-trace-1"]
    id: str
    model: ModelInfo
    request: Annotated[Json, TraceRequest]
    streams: list[Annotated[Json, Stream]]
    """["text"], or ["source", "target"]."""
    answer: Answer
    together: Annotated[Json, EnsembleMember] | None
    """The member of an ensemble that is traced, and the answer of all. null: a single model."""
    nodes: list[TraceNode]
    """In order of computation."""
    params: dict[str, Param]
    predictions: list[Annotated[Json, Prediction]]
    decode: Annotated[Json, DecodeLog]
    generation: Annotated[Json, GenerationInfo]
    checks: list[Annotated[Json, Check]]
    omitted: list[Omitted]
    warnings: list[str]
    """"3 of 9 tokens are unknown to the model", "cut to 256 tokens"."""
    seconds: float
    edited: Annotated[Json, WhatIf] | None
    """What the edits of the request change; null without edits."""


@weak_cache
def manifest(explanation: Explanation) -> Manifest:
    """Return the manifest as JSON data; it is cached, so do not change it."""
    return {
        "format": "glassformer-trace-1",
        "id": explanation.id,
        "model": model_info(explanation.subject, explanation.request.checkpoint),
        "request": explanation.request.to_json(),
        "streams": [stream.to_json() for stream in explanation.streams],
        "answer": explanation.answer,
        "together": explanation.together and asdict(explanation.together),
        "nodes": [node_json(step) for step in explanation.records.steps.values()],
        "params": params_json(explanation.records, explanation.subject.model),
        "predictions": [prediction.to_json() for prediction in explanation.predictions],
        "decode": explanation.decode.to_json(),
        "generation": asdict(explanation.generation),
        "checks": [asdict(check) for check in explanation.checks],
        "omitted": explanation.omitted,
        "warnings": explanation.warnings,
        "seconds": explanation.seconds,
        "edited": explanation.edited and explanation.edited.to_json(),
    }


def node_json(step: Step) -> TraceNode:
    """Return a node of the manifest."""
    low, high = step.limits
    return {
        "id": step.id,
        "site": step.site,
        "editable": bool(SITES[step.site].edit) and step.op != "mask",
        "op": step.op,
        "inputs": list(step.inputs),
        "params": dict(step.params),
        "attrs": dict(step.attrs),
        "axes": [_sized(axis, size) for axis, size in zip(step.axes, step.shape, strict=True)],
        "dtype": wire_dtype(step.value),
        "min": low,
        "max": high,
        "source": None if step.source is None else asdict(step.source),
        "stack": step.stack,
        "layer": step.layer,
        "block": step.block,
    }


def _sized(axis: Axis, size: int) -> SizedAxis:
    sized: SizedAxis = {"name": axis.name, "size": size}
    return {**sized, "stream": axis.stream} if axis.stream else sized


def params_json(records: RecordStore, model: nn.Module) -> dict[str, Param]:
    """Return the parameters that the steps use, with their axes."""
    params: dict[str, Param] = {}
    for name, axes in records.params.items():
        sizes = get_parameter(model, name).shape
        params[name] = {"axes": [{"name": axis, "size": size} for axis, size in zip(axes, sizes, strict=True)]}
    return params

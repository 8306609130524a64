"""What the page receives: of a run before anything is traced, and in a manifest all of an explanation but its tensors.

A manifest has the id, size and inputs of each tensor, and no values. The classes here are also the types that the page
is compiled against (`typescript.py`).
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from torch import nn

from glassformer.config import DecodeConfig
from glassformer.explain.capture.sites import SourceLine
from glassformer.explain.capture.tape import Axis, Check, Step
from glassformer.explain.edits.apply import why_no_edits
from glassformer.explain.edits.contributions import why_no_sum
from glassformer.explain.edits.what_if import WhatIf
from glassformer.explain.explanation import PRECISION, Explanation, Omitted
from glassformer.explain.inputs.encoded_text import GenerationInfo
from glassformer.explain.inputs.families import Stacks, decode_settings, family_of
from glassformer.explain.learn.backward import is_gradient
from glassformer.explain.learn.learning import LearningFacts, known_answers, why_no_learning
from glassformer.explain.one_label import Labels
from glassformer.explain.predictions import Answer, DecodeLog, EnsembleMember, Prediction, settings_json
from glassformer.explain.record_store import RecordStore, WireDtype, get_parameter, weak_cache, wire_dtype
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import (
    MODEL,
    CheckpointInfo,
    Subject,
    checkpoint_sha256,
    checkpoint_step,
    examples,
    list_checkpoints,
)
from glassformer.models.build import d_ff_of, d_head_of

Json = dict[str, Any]
MAX_TRACES = 4
"""Maximum number of traces a server keeps; that of a long text takes a hundred megabytes."""
MAX_TEXT_BYTES = 200_000
"""Maximum size of a text that a server reads: far more than any model here, and still quick to tokenize."""


N_ANSWERS, SHORT_TEXT = 12, 300
"""Maximum texts with right answers that are sent, and maximum characters of each."""


class SpecialIds(TypedDict):
    """Ids of the special tokens."""

    pad: int
    unk: int
    bos: int
    eos: int
    mask: int


class ModelInfo(TypedDict):
    """The model: task, checkpoint, size, hyperparameters and tokenizer."""

    task: str
    family: Stacks
    run: str
    """The folder's name, not its path."""
    recipe: str
    checkpoint: str
    """"model" (the best) or "step-00001000"."""
    step: int | None
    sha256: str | None
    n_params: int
    ensemble_size: int
    """Number of models in the ensemble; 1: a single model."""
    n_layers: int
    n_decoder_layers: int
    d_model: int
    n_heads: int
    d_head: int
    d_ff: int
    pre_norm: bool
    norm: str
    positions: str
    activation: str
    pooling: str | None
    vocab_size: int
    max_len: int
    label_names: list[str] | None
    word_mask_prob: float
    tokenizer: str
    special_ids: SpecialIds
    precision: str
    """Precision of all numbers of an explanation; `predict` may answer in another one."""
    versions: dict[str, str]


class Limits(TypedDict):
    """Maximum tokens of a text kept whole, and of one recorded a layer at a time; traces kept; bytes of a text."""

    full: int
    layered: int
    max_traces: int
    max_text_bytes: int


class KnownAnswer(TypedDict):
    """A text with its right answer."""

    text: str
    answer: str


class LearnDefaults(TypedDict):
    """How the run was trained, for steps of learning, and texts of its evaluation with their right answers."""

    optimizer: Literal["adamw", "adam", "sgd", "muon"]
    lr: float
    matrix_lr: float
    """Learning rate of the matrices with Muon; it grows and shrinks with that of the request."""
    examples: list[KnownAnswer]


class RunInfo(TypedDict):
    """Description of a run, sent before anything is traced (GET /api/run)."""

    model: ModelInfo
    examples: list[str]
    """Example texts, from the evaluation of the run where it has been evaluated."""
    checkpoints: list[CheckpointInfo]
    """Oldest first, "model" last."""
    defaults: Annotated[dict[str, Any], DecodeConfig]
    limits: Limits
    learn: LearnDefaults
    version: str
    start: NotRequired[list[Annotated[dict[str, Any], TraceRequest]]]
    """Requests given on the command line: none, one text, or two to compare. Only the server sends it."""


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
    op: str
    inputs: list[str]
    params: dict[str, str]
    """Parameter id by role ("weight", "bias")."""
    attrs: dict[str, float | str | bool | list[int | None]]
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
    labels: Annotated[Json, Labels] | None
    """Of a classifier of several labels all of them, and which is looked at; null for any other."""
    temperature: float | None
    """Of a classifier the one that was fitted on the validation texts; null where none was, or to other weights."""
    together: Annotated[Json, EnsembleMember] | None
    """The member of an ensemble that is traced, and the answer of all. null: a single model."""
    nodes: list[TraceNode]
    """In order of computation, with an answer to learn up to its loss."""
    gradients: list[TraceNode]
    """Those of the loss, of steps and parameters, in order of computation: from the loss to the first step. Empty
    without an answer to learn."""
    params: dict[str, Param]
    predictions: list[Annotated[Json, Prediction]]
    decode: Annotated[Json, DecodeLog]
    generation: Annotated[Json, GenerationInfo]
    checks: list[Annotated[Json, Check]]
    omitted: list[Omitted]
    warnings: list[str]
    """"3 of 9 tokens are unknown to the model", "cut to 256 tokens"."""
    refused: dict[str, str]
    """Why "edits", and so sweeps, "contributions" or "learn" are refused for this text, a sentence each."""
    seconds: float
    edited: Annotated[Json, WhatIf] | None
    """What the edits of the request change; null without edits."""
    learning: Annotated[Json, LearningFacts] | None
    """What is learned of the answer of the request, and how; null without one."""


@weak_cache
def manifest(explanation: Explanation) -> Manifest:
    """Return the manifest as JSON data; it is cached, so do not change it."""
    steps = explanation.records.steps
    return {
        "format": "glassformer-trace-1",
        "id": explanation.id,
        "model": model_info(explanation.subject, explanation.request.checkpoint),
        "request": explanation.request.to_json(),
        "streams": [stream.to_json() for stream in explanation.streams],
        "answer": explanation.answer,
        "labels": explanation.labels and asdict(explanation.labels),
        "temperature": explanation.temperature,
        "together": explanation.together and asdict(explanation.together),
        "nodes": [node_json(step) for id, step in steps.items() if not is_gradient(id)],
        "gradients": [node_json(step) for id, step in reversed(steps.items()) if is_gradient(id)],
        "params": params_json(explanation.records, explanation.subject.model),
        "predictions": [prediction.to_json() for prediction in explanation.predictions],
        "decode": explanation.decode.to_json(),
        "generation": asdict(explanation.generation),
        "checks": [asdict(check) for check in explanation.checks],
        "omitted": explanation.omitted,
        "warnings": explanation.warnings,
        "refused": _refused(explanation),
        "seconds": explanation.seconds,
        "edited": explanation.edited and explanation.edited.to_json(),
        "learning": explanation.learning and asdict(explanation.learning),
    }


def _refused(explanation: Explanation) -> dict[str, str]:
    learns = "a model learns without edits only" if explanation.learning else None
    no_edits = learns or why_no_edits(explanation)
    reasons = {
        "edits": no_edits,
        "contributions": no_edits or why_no_sum(explanation.records.steps),
        "learn": why_no_learning(explanation),
    }
    return {what: why for what, why in reasons.items() if why}


def node_json(step: Step) -> TraceNode:
    """Return a node of the manifest."""
    low, high = step.limits
    return {
        "id": step.id,
        "site": step.site,
        "editable": step.editable,
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


def model_info(subject: Subject, checkpoint: str = MODEL) -> ModelInfo:
    """Return the description of a model; `checkpoint` is the name of the subject's weights."""
    task, config, t = subject.task, subject.task.config.model, subject.task.tokenizer
    family = family_of(task).stacks
    n_decoder = 0 if family == "encoder" else config.n_layers
    return {
        "task": task.name,
        "family": family,
        "run": subject.path.resolve().name,
        "recipe": task.config.recipe,
        "checkpoint": checkpoint,
        "step": checkpoint_step(subject, checkpoint),
        "sha256": checkpoint_sha256(subject, checkpoint),
        "n_params": sum(p.numel() for p in subject.model.parameters()),
        "ensemble_size": config.ensemble_size,
        "n_layers": config.n_layers,
        "n_decoder_layers": n_decoder,
        "d_model": config.d_model,
        "n_heads": config.n_heads,
        "d_head": d_head_of(config),
        "d_ff": d_ff_of(config),
        "pre_norm": config.pre_norm,
        "norm": config.norm,
        "positions": config.positions,
        "activation": config.activation,
        "pooling": config.pooling if family == "encoder" else None,
        "vocab_size": t.vocab_size,
        "max_len": task.config.text.max_len,
        "label_names": task.label_names,
        "word_mask_prob": task.config.train.word_mask_prob,
        "tokenizer": t.kind,
        "special_ids": {"pad": t.pad_id, "unk": t.unk_id, "bos": t.bos_id, "eos": t.eos_id, "mask": t.mask_id},
        "precision": PRECISION,
        "versions": _versions(),
    }


def run_info(subject: Subject) -> RunInfo:
    """Return the description of a run."""
    known = [one for one in known_answers(subject) if len(one[0]) <= SHORT_TEXT]
    short: list[KnownAnswer] = [{"text": text, "answer": answer} for text, answer in known]
    return {
        "model": model_info(subject),
        "examples": examples(subject),
        "checkpoints": list_checkpoints(subject),
        "defaults": settings_json(decode_settings(subject, {})),
        "limits": {
            "full": MAX_FULL_TOKENS,
            "layered": MAX_LAYERED_TOKENS,
            "max_traces": MAX_TRACES,
            "max_text_bytes": MAX_TEXT_BYTES,
        },
        "learn": {
            "optimizer": subject.task.config.train.optimizer,
            "lr": subject.task.config.train.lr,
            "matrix_lr": subject.task.config.train.muon.matrix_lr,
            "examples": short[:N_ANSWERS],
        },
        "version": _versions()["glassformer"],
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("glassformer", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return versions

"""What the page receives: of a run before anything is traced, and in a manifest all of an explanation but its tensors.

A manifest has the id, size and inputs of each tensor, and no values. The classes here are also the types that the page
is compiled against (`typescript.py`). Most of their fields are those of a record of the explanation, which `_fields`
takes over by name. `pack` gives the bytes of a tensor, which a server sends and a file holds.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

import msgspec
import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.capture.sites import Axis, Check, Step
from glassformer.explain.capture.slices import wire_dtype
from glassformer.explain.edits.apply import why_no_edits
from glassformer.explain.edits.effects import WhatIf
from glassformer.explain.edits.sweeps import why_no_sum
from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs import FAMILIES, Answer, DecodeLog, Prediction, Stacks
from glassformer.explain.learn.backward import is_gradient
from glassformer.explain.learn.learning import LearningFacts, known_answers, why_no_learning
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import (
    MODEL,
    CheckpointInfo,
    Labels,
    Subject,
    View,
    checkpoint_sha256,
    checkpoint_step,
    examples,
    list_checkpoints,
)
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.models.ensemble import members_of
from glassformer.nn.operations import OPERATIONS, Row, row_of

Json = dict[str, Any]
MAX_TRACES, MAX_KEPT_TOKENS = 4, 1024
"""Maximum number of traces a server keeps, and of their tokens: a long text takes hundreds of megabytes."""
MAX_TEXT_BYTES = 200_000
"""Maximum size of a text that a server reads: far more than any model here, and still quick to tokenize."""
LIMITS = {"max_traces": MAX_TRACES, "max_text_bytes": MAX_TEXT_BYTES}
N_ANSWERS, SHORT_TEXT = 12, 300
"""Maximum texts with right answers that are sent, and maximum characters of each."""


class ModelInfo(TypedDict):
    """The model: task, checkpoint, size, hyperparameters and special tokens."""

    task: str
    family: Stacks
    run: str
    """The folder's name, not its path."""
    checkpoint: str
    """"model" (the best) or "step-00001000"."""
    step: int | None
    sha256: str | None
    n_params: int
    n_layers: int
    n_decoder_layers: int
    d_model: int
    n_heads: int
    d_head: int
    d_ff: int
    pre_norm: bool
    vocab_size: int
    label_names: list[str] | None
    special_ids: Annotated[dict[str, int], 'Record<"pad" | "unk" | "bos" | "eos" | "mask", number>']
    n_members: int
    """Number of models in the ensemble, 1 of a single model."""


class LearnDefaults(TypedDict):
    """How the run was trained, for steps of learning, and texts of its evaluation with their right answers."""

    optimizer: Literal["adamw", "adam", "sgd", "muon"]
    lr: float
    matrix_lr: float
    """Learning rate of the matrices with Muon; it grows and shrinks with that of the request."""
    examples: list[Annotated[dict[str, str], 'Record<"text" | "answer", string>']]


class RunInfo(TypedDict):
    """Description of a run, sent before anything is traced (GET /api/run)."""

    model: ModelInfo
    examples: list[str]
    """Example texts, from the evaluation of the run where it has been evaluated."""
    checkpoints: list[CheckpointInfo]
    """Oldest first, "model" last."""
    limits: Annotated[dict[str, int], 'Record<"max_traces" | "max_text_bytes", number>']
    """Maximum traces kept, and bytes of a text."""
    learn: LearnDefaults
    operations: dict[str, Annotated[Json, Row]]
    """The table of operations and gradients, by which the page computes a step again and writes its formula."""
    start: NotRequired[list[Annotated[Json, TraceRequest]]]
    """Requests given on the command line: none, one text, or two to compare. Only the server sends it."""


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
    together: Answer | None
    """The answer of all members of an ensemble; null: a single model."""
    nodes: list[Step]
    """In order of computation, with an answer to learn up to its loss."""
    gradients: list[Step]
    """Those of the loss, of steps and parameters, in order of computation: from the loss to the first step. Empty
    without an answer to learn."""
    params: dict[str, Annotated[dict[str, list[Axis]], "{ axes: Axis[] }"]]
    """The parameters that some node uses."""
    predictions: list[Annotated[Json, Prediction]]
    decode: Annotated[Json, DecodeLog]
    checks: list[Annotated[Json, Check]]
    warnings: list[str]
    """"3 of 9 tokens are unknown to the model", "cut to 256 tokens"; of a long text what is not shown."""
    refused: dict[str, str]
    """Why "edits", and so sweeps, "contributions" or "learn" are refused for this text, a sentence each."""
    seconds: float
    edited: Annotated[Json, WhatIf] | None
    """What the edits of the request change; null without edits."""
    learning: Annotated[Json, LearningFacts] | None
    """What is learned of the answer of the request, and how; null without one."""


def manifest(explanation: Explanation) -> Manifest:
    """Return the manifest as JSON data."""
    steps = explanation.records
    no_edits = "a model learns without edits only" if explanation.learning else why_no_edits(explanation)
    no_learning = why_no_learning(explanation.subject.task, explanation.streams)
    refused = {"edits": no_edits, "contributions": no_edits or why_no_sum(steps), "learn": no_learning}
    return _fields(
        Manifest,
        explanation,
        format="glassformer-trace-1",
        model=model_info(explanation.subject, explanation.request.checkpoint),
        request=explanation.request.to_json(),
        nodes=[step.without_value() for id, step in steps.items() if not is_gradient(id)],
        gradients=[step.without_value() for id, step in reversed([*steps.items()]) if is_gradient(id)],
        params={name: {"axes": axes} for name, axes in explanation.records.params.items()},
        refused={what: why for what, why in refused.items() if why},
        edited=explanation.edited and explanation.edited.to_json(),
    )


def _fields(kind: Any, source: Any, **own: Any) -> Any:
    """Return what a class of JSON data consists of: `own`, and all else from the fields of `source`."""
    return plain({name: own[name] if name in own else getattr(source, name) for name in kind.__annotations__})


def plain(value: Any) -> Any:
    """Return records as JSON data, with null for NaN and infinities, and for a tensor its element type."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=wire_dtype))


def model_info(subject: Subject, checkpoint: str = MODEL) -> ModelInfo:
    """Return the description of a model; `checkpoint` is the name of the subject's weights."""
    task, config, t = subject.task, subject.task.config.model, subject.task.tokenizer
    family = FAMILIES[task.explain_as][0]
    return _fields(
        ModelInfo,
        config,
        task=task.name,
        family=family,
        run=subject.path.resolve().name,
        checkpoint=checkpoint,
        step=checkpoint_step(subject, checkpoint),
        sha256=checkpoint_sha256(subject, checkpoint),
        n_params=sum(p.numel() for p in subject.model.parameters()),
        n_decoder_layers=0 if family == "encoder" else config.n_layers,
        d_head=d_head_of(config),
        d_ff=d_ff_of(config),
        vocab_size=t.vocab_size,
        label_names=task.label_names,
        special_ids={"pad": t.pad_id, "unk": t.unk_id, "bos": t.bos_id, "eos": t.eos_id, "mask": t.mask_id},
        n_members=len(members_of(subject.weights if isinstance(subject, View) else subject.model)),
    )


def run_info(subject: Subject) -> RunInfo:
    """Return the description of a run."""
    train = subject.task.config.train
    answers = [{"text": text, "answer": answer} for text, answer in known_answers(subject) if len(text) <= SHORT_TEXT]
    return {
        "model": model_info(subject),
        "examples": examples(subject),
        "checkpoints": list_checkpoints(subject),
        "limits": LIMITS,
        "learn": _fields(LearnDefaults, train, examples=answers[:N_ANSWERS]),
        "operations": operations_json(),
    }


def operations_json() -> dict[str, Json]:
    """Return every operation and the gradient of each of its arguments, by name."""
    names = [one for name, row in OPERATIONS.items() for one in (name, *(f"{name}.{to}" for to in row.gradients))]
    return {name: asdict(row_of(name)) for name in names}


MAX_F16 = 6e4
"""Tensors with larger values are sent as 32-bit floats; the largest 16-bit float is 65504."""
MAX_TENSOR_BYTES = 64 << 20
"""Larger tensors are refused; request a slice instead."""
Packing: TypeAlias = Literal["f16", "f32", "i32", "u8"]
"""The element types in which tensors are packed."""
LAYOUTS: dict[Packing, str] = {"f16": "<f2", "f32": "<f4", "i32": "<i4", "u8": "u1"}


def pack(array: np.ndarray, half: bool = False) -> tuple[bytes, Packing]:
    """Return the little-endian bytes of an array and their type; `half` the precision where none would overflow."""
    kinds: dict[str, Packing] = {"f": "f32", "i": "i32"}
    sent = kinds.get(array.dtype.kind, "u8")
    if half and sent == "f32" and np.abs(array[np.isfinite(array)]).max(initial=0) <= MAX_F16:
        sent = "f16"
    if array.size * np.dtype(LAYOUTS[sent]).itemsize > MAX_TENSOR_BYTES:
        raise UsageError(f"a tensor of shape {array.shape} is too large to send", "ask for a slice of it")
    return np.ascontiguousarray(array, dtype=LAYOUTS[sent]).tobytes(), sent

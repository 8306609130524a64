"""Describe a run for the page before anything is traced: the model, its checkpoints, example texts."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, NotRequired, TypedDict

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError
from glassformer.explain.decode_log import settings_json
from glassformer.explain.explanation import PRECISION
from glassformer.explain.inputs.families import Stacks, decode_settings, family_of
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.subject import (
    MODEL,
    CheckpointInfo,
    Subject,
    checkpoint_sha256,
    checkpoint_step,
    list_checkpoints,
)
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.runs.folder import RunFolder

MAX_TRACES = 4
"""Maximum number of traces a server keeps; that of a long text takes a hundred megabytes."""
MAX_TEXT_BYTES = 200_000
"""Maximum size of a text that a server reads: far more than any model here, and still quick to tokenize."""
N_EXAMPLES = 6
EXAMPLE_TEXTS = {
    "dates": [
        "[en_US] Monday, November 16, 2026",
        "[de_DE] 16. November 2026",
        "[fr_FR] 16/11/2026",
        "[zh_CN] 2026年11月16日",
    ],
    "imdb": [
        "A wonderful little film: funny, warm and beautifully acted.",
        "Not bad at all, I was pleasantly surprised.",
        "I wanted to love it, but two hours of my life are gone and I will never get them back.",
    ],
    "shakespeare": ["ROMEO:\n", "To be, or not to be"],
}
"""Example texts of data sets whose own are too long, or too similar, to be examples."""


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


class RunInfo(TypedDict):
    """Description of a run, sent before anything is traced (GET /api/run)."""

    model: ModelInfo
    examples: list[str]
    """Example texts, from the evaluation of the run where it has been evaluated."""
    checkpoints: list[CheckpointInfo]
    """Oldest first, "model" last."""
    defaults: Annotated[dict[str, Any], DecodeConfig]
    limits: Limits
    version: str
    start: NotRequired[list[Annotated[dict[str, Any], TraceRequest]]]
    """Requests given on the command line: none, one text, or two to compare. Only the server sends it."""


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
        "version": _versions()["glassformer"],
    }


def examples(subject: Subject) -> list[str]:
    """Return a few example texts: of the data set, then the shortest of those the run was evaluated on."""
    try:
        evaluation = RunFolder(subject.path).read_evaluation()
        rows = evaluation.examples if evaluation else []
        texts = [str(row["prompt"] if "prompt" in row else row["text"]) for row in rows]
    except (CheckpointError, KeyError, TypeError):
        texts = []
    short_texts = EXAMPLE_TEXTS.get(subject.task.config.data.dataset or "", [])
    evaluated = [text for text in sorted(set(texts), key=lambda text: (len(text), text)) if text.strip()]
    return [*short_texts, *evaluated][:N_EXAMPLES]


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("glassformer", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return versions

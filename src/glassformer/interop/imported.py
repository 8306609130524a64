"""A pretrained model of another library in the terms of this package: the one form that every reader gives.

A reader (of a Hugging Face folder, of a CTranslate2 folder) returns an `ImportedModel`; `transfer.py` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor

from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.export_facts import FACTS, RUN_TOKENIZER, ExportFacts, read_facts
from glassformer.interop.source_folder import SourceFolder
from glassformer.models.build import without_memory
from glassformer.runs.model_folder import check_shapes, load_weights, shapes_of
from glassformer.runs.records import Origin
from glassformer.tasks import Task, task_class
from glassformer.text.answers import Decision
from glassformer.text.tokenizer import Tokenizer

MAX_WEIGHTS = 1 << 32
"""Most weights of a model that is imported: 16 GiB in float32."""


@dataclass(frozen=True)
class ImportedModel:
    """A pretrained model in the terms of this package.

    Attributes:
        task: "classify", "tag", "pretrain" (a masked language model), "lm", "translate", or "embed" (a bare encoder).
        model: the settings of its Transformer.
        tokenizer: made with `Tokenizer.imported`, special tokens by role, prefix and suffix in it.
        max_len: most tokens of a text, with what is around it.
        state: weights in float32 by the names of this package's modules, as in `named_parameters()`.
        source: where it came from.
        labels: the classes of a classifier, in the order of the logits.
        notes: what was repeated, permuted or folded, and what was left out; one sentence each.
        decode: settings of decoding.
        truncate: which part of a text that is too long is kept.
        decision: how probabilities become answers.
    """

    task: str
    model: ModelConfig
    tokenizer: Tokenizer
    max_len: int
    state: Mapping[str, Tensor]
    source: Origin
    labels: list[str] | None = None
    notes: tuple[str, ...] = ()
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    truncate: Literal["head", "tail", "head+tail"] = "head"
    decision: Decision = field(default_factory=Decision)


def restore_imported(imported: ImportedModel) -> tuple[Task, torch.nn.Module]:
    """Return the task and the model with the weights of an import, in evaluation mode.

    Sizes are compared before any memory is taken.

    Raises:
        UsageError: there is no room for a token of a text.
        CheckpointError: a weight is missing, is not one of the model's, has another shape, or is not finite.
    """
    t, where = imported.tokenizer, imported.source.name
    text = TextConfig(
        tokenizer="imported" if t.special else cast(Any, t.kind),
        vocab_size=max(6, t.vocab_size),
        lowercase=bool(t.lowercases),
        max_len=imported.max_len,
        truncate=imported.truncate,
    )
    config = Config(task=imported.task, text=text, model=imported.model, decode=imported.decode)
    task = task_class(imported.task)(config, t, imported.labels)
    task.decision = imported.decision
    if (room := t.room(imported.max_len)) < 1:
        n = len(t.framed([]))
        message = f"max_len {imported.max_len} leaves {room} tokens for a text, which has {n} around it"
        raise UsageError(message, f"use --max-len {n + 1} or more")
    try:
        with without_memory():
            expected = shapes_of(task.build_model())
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} describes no model: {str(error)[:200]}") from error
    if (n := sum(map(math.prod, expected.values()))) > MAX_WEIGHTS:
        raise CheckpointError(f"{where} describes a model of {n:,} weights, more than {MAX_WEIGHTS:,}")
    check_shapes(expected, {name: tuple(tensor.shape) for name, tensor in imported.state.items()})
    for name, tensor in imported.state.items():
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{where} holds NaN or infinity in {name}", "use another copy of the model")
    with torch.random.fork_rng(devices=[]):
        model = task.build_model()
    load_weights(model, dict(imported.state))
    return task, model.eval()


def own_export(folder: SourceFolder, target: str, kind: str) -> tuple[ExportFacts, Tokenizer] | None:
    """Return the description of an export of ours and the run's tokenizer; None where another library wrote the folder.

    Raises:
        CheckpointError: it is damaged, or of another kind of model or library.
    """
    if not folder.has(FACTS):
        return None
    folder.bytes(FACTS)  # its hash, and no link
    facts = read_facts(folder.path)
    if (facts.target, facts.kind) != (target, kind):
        message = f"{folder.path / FACTS} describes a {facts.kind} for {facts.target}, and the model is a {kind}"
        raise CheckpointError(f"{message} for {target}", "copy the folder whole")
    folder.bytes(RUN_TOKENIZER, "tokenizer")
    return facts, Tokenizer.load(folder.path / RUN_TOKENIZER)

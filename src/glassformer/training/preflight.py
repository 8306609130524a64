"""What is known before the first step: machine, data, size, work, what is cut, and how long it will take."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.data.check import compared, label_counts
from glassformer.data.corpus import RaggedArray
from glassformer.data.findings import KnownData, of_data
from glassformer.runs.model_folder import read_origin
from glassformer.runs.records import IMPORT, INITIAL, DataRecord, JsonObject, SplitRecord
from glassformer.training.budget import Pace
from glassformer.training.computing import flops_per_token
from glassformer.training.finetune import pretrained_folder
from glassformer.training.state import RunContext
from glassformer.utils.formatting import counted, duration, glassformer_command

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "scikit-learn")
COUNTS = {f.name for f in fields(SplitRecord) if f.name.startswith("n_")} - {"n_texts_unknown"}
"""Counts of a corpus that a split's record has fields for; others are the task's own."""


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return versions, platform, device, threads and processors."""
    cpu = torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()
    return {
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else str(cpu),
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
    }


def describe_environment(context: RunContext) -> dict[str, Any]:
    """Return the machine, the precision and what it was chosen by, the time (UTC) and the command."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    chosen = {"computing": context.choice} if context.choice else {}
    of_run = {"precision": context.precision, "started": started, "command": glassformer_command(*sys.argv[1:])}
    return describe_machine(context.device) | of_run | chosen


def preflight(
    context: RunContext, pace: Pace, model: nn.Module, initial: tuple[float, float] | None = None
) -> DataRecord:
    """Look at the data and the model, and return what is known before the first step.

    FLOPs are those of a training step per real token, three times those of the forward pass. The estimated seconds are
    those of the steps: validations and an earlier end by patience are not known.
    """
    task, config, corpus, data = context.task, context.config, context.train, context.data
    lengths, n_batches, train, t = corpus.lengths, len(task.epoch_batches(corpus, 0)), config.train, task.tokenizer
    squares = (lengths.astype("float64") ** 2).sum()
    typical = float(squares / max(1, lengths.sum()))  # the length of the text that a token is in
    per_epoch = pace.step * n_batches / train.accumulate
    base: JsonObject = {} if initial is None else {INITIAL: initial[0]}
    if (pretrained := context.pretrained) is not None:
        base |= {"path": pretrained.path, "sha256": pretrained.sha256}
        if (origin := read_origin(pretrained_folder(pretrained.path))) is not None:
            base[IMPORT] = asdict(origin)
    record = DataRecord(
        config.task,
        task.metric,
        config.data.dataset,
        data.train.source,
        describe_splits(context),
        label_names=task.label_names,
        hashes=data.hashes,
        notes=data.notes,
        tokenizer={"kind": t.kind, "vocab_size": t.vocab_size, "sha256": t.sha256, "has_ngrams": t.ngrams is not None},
        preflight={
            "n_parameters": n_parameters(model),
            "flops_per_token": flops_per_token(task, min(typical, config.text.max_len)),
            "padding": pace.padding,
            "tokens_per_s": pace.tokens_per_s,
            "seconds_per_epoch": per_epoch,
            "estimated_seconds": min((train.epochs or math.inf) * per_epoch, (train.steps or math.inf) * pace.step),
        },
        columns=data.columns,
        counts=data.counts,
        base=base,
        scale={name: x for name, x in task.decision.to_json().items() if name in ("mean", "sd")},
    )
    labels, better = label_counts(task.schema, data.train), "" if "text.truncate" in task.ignores else "head+tail"
    known = KnownData(config, record.splits, labels, t.ngrams is not None, better)
    found = [*data.findings, *of_data(known)]
    return replace(record, preflight=record.preflight | {"warnings": [*map(asdict, found)]})


def lines(record: DataRecord) -> list[str]:
    """Return the size, data and speed of a training, and what was met in the data, as lines of text."""
    facts, train = record.preflight, record.train
    met = {
        "truncated": train.n_truncated,
        "too long and left out": train.n_dropped,
        "empty and left out": train.n_empty,
        "duplicates kept": train.n_duplicates,
        **record.counts,
    }
    shown = ", ".join(f"{name}: {n:,}" for name, n in met.items() if n)
    return [
        f"model       {facts['n_parameters']:,} parameters, {facts['flops_per_token'] / 1e6:.1f} MFLOP per token",
        f"data        {counted(train.n, 'examples')}, {train.n_tokens or 0:,} tokens; {facts['padding']:.1%} padding",
        *([f"met         {shown}"] if shown else []),
        f"speed       {facts['tokens_per_s']:,.0f} tokens/s, measured; an epoch takes "
        f"{duration(facts['seconds_per_epoch'])}, the run about {duration(facts['estimated_seconds'])}",
    ]


def describe_splits(context: RunContext) -> dict[str, SplitRecord]:
    """Return each split as the model sees it, as counted while it was encoded; of the test split its size alone."""
    task, splits = context.task, dict[str, SplitRecord]()
    for name, split in context.data.splits().items():
        counts: dict[str, Any] = {"n": len(split.text)}
        if (corpus := {"train": context.train, "valid": context.valid}.get(name)) is not None:
            stats, own = corpus.stats, {name: n for name, n in corpus.stats.items() if name not in {*COUNTS, "n"}}
            counts = {name: n for name, n in stats.items() if name in COUNTS} | {
                "n": len(corpus),
                "counts": own or None,
            }
            counts["unknown_rate"] = stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0))
            if len(corpus) > 1:
                counts["n_texts_unknown"] = n_texts_with_unknown(task.token_columns(corpus), task.tokenizer.unk_id)
        counts |= compared(split, context.data.train, len(context.train) == 1)  # running text is one sequence
        splits[name] = SplitRecord(**counts, sha256=split.sha256)
    return splits


def n_texts_with_unknown(columns: Iterable[RaggedArray], unk_id: int) -> int:
    """Count the examples with at least one unknown token in any of their columns."""
    hits = [np.searchsorted(c.offsets, np.flatnonzero(c.flat == unk_id), side="right") for c in columns]
    return len(np.unique(np.concatenate(hits)))


def n_parameters(model: nn.Module) -> int:
    """Return the number of parameters, frozen ones too; shared ones count once."""
    return sum(p.numel() for p in model.parameters())

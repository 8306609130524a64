"""What a run says of the machine it ran on and the data it saw: `env.json` and `data.json`."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

from glassformer.runs.records import DataRecord
from glassformer.runs.sealed_folder import package_versions
from glassformer.training.context import RunContext
from glassformer.training.preflight import Preflight
from glassformer.utils.formatting import glassformer_command

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "scikit-learn")


def describe_environment(device: torch.device, precision: str) -> dict[str, Any]:
    """Return versions, platform, device, precision, threads and the time (UTC)."""
    cpu = torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()
    return {
        "versions": package_versions(*PACKAGES),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else str(cpu),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": glassformer_command(*sys.argv[1:]),
    }


def describe_data(context: RunContext, facts: Preflight) -> DataRecord:
    """Return sizes, lengths, truncated and unknown tokens, file hashes, and the tokenizer."""
    t, known = context.task.tokenizer, asdict(facts)
    known.pop("splits")
    return DataRecord(
        context.config.task,
        context.task.metric,
        context.config.data.dataset,
        context.data.train.source,
        facts.splits,
        label_names=context.task.label_names,
        hashes=context.data.hashes,
        notes=context.data.notes,
        tokenizer={"kind": t.kind, "vocab_size": t.vocab_size, "sha256": t.sha256, "has_ngrams": t.ngrams is not None},
        preflight=known,
        columns=context.data.columns,
        counts=context.data.counts,
        pipes=context.data.pipes,
        base={"path": context.pretrained.path, "sha256": context.pretrained.sha256} if context.pretrained else {},
    )

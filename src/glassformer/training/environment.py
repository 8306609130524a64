"""What a run says of the machine it ran on and the data it saw: `env.json` and `data.json`."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from glassformer.data.corpus import EncodedCorpus
from glassformer.runs.sealed_folder import installed
from glassformer.runs.values import DataFacts, SplitFacts
from glassformer.training.context import RunContext

PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "scikit-learn")


def describe_environment(device: torch.device, precision: str) -> dict[str, Any]:
    """Versions, platform, device, precision, threads and the time (UTC)."""
    cpu = torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()
    return {
        "versions": installed(*PACKAGES),
        "python": platform.python_version(), "platform": platform.platform(), "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else str(cpu),
        "precision": precision, "threads": torch.get_num_threads(), "cpus": os.cpu_count(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["glassformer", *sys.argv[1:]]),
    }  # fmt: skip


def describe_data(p: RunContext, preflight: dict[str, Any]) -> DataFacts:
    """Sizes, lengths, what was cut or unknown, hashes of what was read, the tokenizer."""
    splits = {"train": _describe_split(p.train), "valid": _describe_split(p.valid)}
    if p.data.test is not None:
        splits["test"] = SplitFacts(len(p.data.test))
    t = p.task.tokenizer
    return DataFacts(
        p.config.task, p.task.metric, p.config.data.dataset, p.data.train.source, splits,
        label_names=p.task.label_names, hashes=p.data.hashes, notes=p.data.notes,
        tokenizer={"kind": t.kind, "vocab_size": t.vocab_size, "sha256": t.sha256}, preflight=preflight,
        base={"path": p.base.path, "sha256": p.base.sha256} if p.base else {},
    )  # fmt: skip


def _describe_split(corpus: EncodedCorpus) -> SplitFacts:
    stats, (counts, edges) = corpus.stats, np.histogram(corpus.lengths, bins=30)
    return SplitFacts(
        **stats | {"n": len(corpus)},
        unknown_rate=stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0)),
        lengths={"edges": edges.tolist(), "counts": counts.tolist()},
    )

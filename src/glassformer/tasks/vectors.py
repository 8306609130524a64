"""Pooled vectors of texts: what the last layer of an encoder gives, before any head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.data.splits import Split
from glassformer.errors import DivergedError, UsageError
from glassformer.models.ensemble import evaluation_mode, members_of
from glassformer.tasks.base import Task
from glassformer.utils.console import announced

CHUNK = 4096
"""Texts that are encoded at a time."""


def pooled_vectors(task: Task, model: nn.Module, texts: Sequence[str]) -> Float[np.ndarray, "N P"]:
    """Return the vector of each text; of a classifier what its head reads, of several members one after the other.

    Raises:
        UsageError: the models of this task do not pool the vectors of tokens.
        DivergedError: a vector is not finite.
    """
    check_pools(task)
    chunks = range(0, len(texts), CHUNK)
    found = [_of_chunk(task, model, texts[i : i + CHUNK]) for i in announced(chunks, len(chunks), "encoded")]
    vectors = np.concatenate(found)
    if not np.isfinite(vectors).all():
        raise DivergedError("the model's vectors are not finite", "name another run")
    return vectors


def check_pools(task: Task) -> None:
    """Raise a UsageError if the models of a task give no vector for a text."""
    if task.explain_as not in ("classifier", "text_embedder"):
        raise UsageError(
            f"a run of {task.name} gives no vector for a text", "name a classifier, or an imported encoder"
        )


def _of_chunk(task: Task, model: nn.Module, texts: Sequence[str]) -> np.ndarray:
    answer = None if task.label_names is None else [task.label_names[0]] * len(texts)  # read and not used
    corpus = task.encode(Split(list(texts), answer), training=False)
    columns = []
    for member in members_of(model):
        kept: list[Tensor] = []
        index: list[np.ndarray] = []
        head: Any = getattr(member, "head", None)
        handle = head.register_forward_pre_hook(partial(_keep, kept)) if head is not None else None
        with evaluation_mode(member), torch.inference_mode():
            for batch in task.batches(member, corpus):
                out = task.logits(member, batch)
                if handle is None:
                    kept.append(out.float().cpu())
                index.append(batch.index)
        if handle is not None:
            handle.remove()
        rows = np.empty((len(texts), kept[0].shape[1]), dtype=np.float32)
        rows[np.concatenate(index)] = torch.cat(kept).numpy()
        columns.append(rows)
    return np.concatenate(columns, axis=1)


def _keep(kept: list[Tensor], module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Keep the input of a head."""
    kept.append(inputs[0].float().cpu())

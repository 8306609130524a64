"""Pooled vectors of texts: what the last layer of an encoder gives, before any head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.data.corpus import EncodedCorpus
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
    if not task.pools:
        raise UsageError(
            f"a run of {task.name} gives no vector for a text", "name a classifier, or an imported encoder"
        )


def _of_chunk(task: Task, model: nn.Module, texts: Sequence[str]) -> np.ndarray:
    corpus = task.encode(Split(list(texts)), training=False)
    columns = []
    for member in members_of(model):
        vectors, index = corpus_vectors(task, member, corpus)
        columns.append(vectors[index.argsort()])  # in the order of the texts
    return np.concatenate(columns, axis=1)


def corpus_vectors(
    task: Task, member: nn.Module, corpus: EncodedCorpus
) -> tuple[Float[np.ndarray, "N P"], Int[np.ndarray, " N"]]:
    """Return the vectors of one model for a corpus in the order of its batches, and which text each is of."""
    kept: list[Tensor] = []
    index: list[np.ndarray] = []
    head: Any = getattr(member, "head", None)
    handle = head.register_forward_pre_hook(partial(_keep, kept)) if head is not None else None
    with evaluation_mode(member):
        for batch in task.batches(member, corpus):
            out = task.logits(member, batch)
            if handle is None:
                kept.append(out.float().cpu())
            index.append(batch.index)
    if handle is not None:
        handle.remove()
    return torch.cat(kept).numpy(), np.concatenate(index)


def _keep(kept: list[Tensor], module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Keep the input of a head."""
    kept.append(inputs[0].float().cpu())

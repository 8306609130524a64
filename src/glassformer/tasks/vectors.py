"""Pooled vectors of texts: what the last layer of an encoder gives, before any head."""

from __future__ import annotations

from collections.abc import Sequence
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


def pooled_vectors(task: Task, model: nn.Module, texts: Sequence[str]) -> Float[np.ndarray, "N P"]:
    """Return the vector of each text; of a classifier what its head reads, of several members one after the other.

    Raises:
        UsageError: the models of this task do not pool the vectors of tokens.
        DivergedError: a vector is not finite.
    """
    if not task.pools:
        hint = "name a classifier, or an imported encoder"
        raise UsageError(f"a run of {task.name} gives no vector for a text", hint)
    corpus = task.encode(Split(list(texts)), training=False)
    found = [corpus_vectors(task, member, corpus) for member in members_of(model)]
    joined = np.concatenate([vectors[index.argsort()] for vectors, index in found], axis=1)
    if not np.isfinite(joined).all():
        raise DivergedError("the model's vectors are not finite", "name another run")
    return joined


def corpus_vectors(
    task: Task, member: nn.Module, corpus: EncodedCorpus
) -> tuple[Float[np.ndarray, "N P"], Int[np.ndarray, " N"]]:
    """Return the vectors of one model for a corpus in the order of its batches, and which text each is of."""
    kept, index = list[Tensor](), list[np.ndarray]()
    last = getattr(member, "head", member)  # a model without a head gives the vectors itself

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], out: Any) -> None:
        kept.append((out if module is member else inputs[0]).float().cpu())

    handle = last.register_forward_hook(keep)
    with evaluation_mode(member):
        for batch in task.batches(member, corpus):
            task.logits(member, batch)
            index.append(batch.index)
    handle.remove()
    return torch.cat(kept).numpy(), np.concatenate(index)

"""Where in a text a language model was surprised: nats by block of characters, so that two models can be compared.

Windows and tokens are a model's own; characters of the text are not. Blocks are cut by the text alone, so any two
models that were scored on it have the same ones, and a paired bootstrap can draw them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from torch import nn
from torch.nn import functional as F

from glassformer.data.corpus import EncodedCorpus, split_document
from glassformer.models.inference import evaluation_mode
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.tasks.base import Task
from glassformer.text.tokenizer import Tokenizer

MOST_BLOCKS, LEAST_CHARS = 500, 200
"""Into so many blocks a text is cut at most, and none is shorter: neighbours within a sentence are not independent."""


def nats_by_token(task: Task, model: nn.Module, corpus: EncodedCorpus) -> np.ndarray:
    """Return −log p of every token of a running text, (N,) in nats; 0 for the first, which nothing predicts."""
    nats = np.zeros(len(corpus.ids.flat))
    with evaluation_mode(model):
        for batch in task.batches(model, corpus):
            logits = task.logits(model, batch).float().flatten(0, 1)
            losses = F.cross_entropy(logits, batch.labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none")
            scored = (batch.labels != IGNORE_INDEX).cpu().numpy()
            position = batch.index[:, None] + 1 + np.arange(scored.shape[1])
            nats[position[scored]] = losses.view(scored.shape).cpu().numpy()[scored]
    return nats


def by_block(nats: np.ndarray, starts: np.ndarray, n_chars: int) -> list[dict[str, Any]]:
    """Return {"block", "chars", "nats"} for each block of a text of `n_chars` characters, by where its tokens start."""
    size = max(LEAST_CHARS, -(-n_chars // MOST_BLOCKS))
    n = -(-n_chars // size)
    sums = np.bincount(np.minimum(starts // size, n - 1), weights=nats, minlength=n)
    chars = [min(size, n_chars - i * size) for i in range(n)]
    return [{"block": i, "chars": chars[i], "nats": round(float(sums[i]), 4)} for i in range(n)]


def token_starts(tokenizer: Tokenizer, documents: Sequence[str]) -> np.ndarray:
    """Return the character at which each token starts, (N,) int64, in documents with an end token between them."""
    starts, at = list[int](), 0
    for i, document in enumerate(documents):
        if i:
            starts.append(max(0, at - 1))  # the end token belongs to what it ends
        for piece in chain.from_iterable(split_document(document, tokenizer.kind)):
            starts += [at + start for start, _ in tokenizer.offsets(piece)]
            at += len(piece)
    return np.array(starts, np.int64)

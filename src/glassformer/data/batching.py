"""A batch of examples as padded tensors: what every task's collation gives and the loop takes.

Which examples belong together is decided in `batch_sampler.py`; how a task's columns become a batch, and where labels
are shifted, is in the task's own file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.data.corpus import EncodedCorpus
from glassformer.nn.ngram_embeddings import NgramBatch


@dataclass(frozen=True)
class Batch:
    """Some examples, padded on the right to the longest of them.

    Args:
        ids: what goes in: texts, sources, or windows of a running text.
        padding_mask: True at real tokens of `ids`; None when there is no padding.
        labels: one an example (B,), or one a token (B, T) with -100 where nothing is scored.
        tgt_in: what a decoder is given beside `ids`, a start token and the target; None without one.
        index: which examples these are (of a running text: where the windows begin).
        n_tokens: real tokens that go in, source and target together.
        n_labels: labels that are scored.
        ngram_batch: how the tokens of `ids` are spelled, for models with n-grams.
    """

    ids: Int[Tensor, "B S"]
    padding_mask: Bool[Tensor, "B S"] | None
    labels: Int[Tensor, " B"] | Int[Tensor, "B T"]
    tgt_in: Int[Tensor, "B T"] | None
    index: np.ndarray
    n_tokens: int
    n_labels: int
    ngram_batch: NgramBatch | None = None

    @property
    def n_examples(self) -> int:
        return self.ids.shape[0]

    @property
    def n_slots(self) -> int:
        """Return the number of input tokens, padding included."""
        return self.ids.numel() + (0 if self.tgt_in is None else self.tgt_in.numel())

    def unscored(self) -> Batch:
        """Return the batch without labels that count, for ranks that compute a batch only to stay in step."""
        return replace(self, n_tokens=0, n_labels=0)

    def to(self, device: torch.device | str) -> Batch:
        """Return a copy on that device."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor | NgramBatch)}
        return replace(self, **{name: x.to(device) for name, x in tensors.items()})


def padding_mask_of(real: np.ndarray) -> Bool[Tensor, "B S"] | None:
    """Return the mask of real tokens, or None if there is no padding."""
    return None if real.all() else torch.from_numpy(real)


def ngrams_of_batch(corpus: EncodedCorpus, index: np.ndarray) -> NgramBatch | None:
    """Return the n-grams of the texts at `index`, each distinct word once; None if the corpus has none."""
    if corpus.surfaces is None or corpus.ngrams is None:
        return None
    surfaces, _ = corpus.surfaces.padded(index, 0)
    distinct, rows = np.unique(np.append(0, surfaces), return_inverse=True)  # row 0 has no n-grams, for padding
    ngrams, _ = corpus.ngrams.padded(distinct, 0)
    rows = rows.ravel()[1:].reshape(len(index), -1)
    return NgramBatch(torch.from_numpy(rows), torch.from_numpy(ngrams))

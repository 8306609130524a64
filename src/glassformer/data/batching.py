"""A batch of examples as padded tensors: what every task's collation gives and the loop takes.

Which examples belong together is decided in `plans.py`; how a task's columns become a batch, and where labels
are shifted, is in the task's own file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor


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
    """

    ids: Int[Tensor, "B S"]
    padding_mask: Bool[Tensor, "B S"] | None
    labels: Int[Tensor, " B"] | Int[Tensor, "B T"]
    tgt_in: Int[Tensor, "B T"] | None
    index: np.ndarray
    n_tokens: int
    n_labels: int

    @property
    def n_examples(self) -> int:
        """Rows."""
        return self.ids.shape[0]

    @property
    def n_slots(self) -> int:
        """Tokens that go in, padding included."""
        return self.ids.numel() + (0 if self.tgt_in is None else self.tgt_in.numel())

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **{name: x.to(device, non_blocking=True) for name, x in tensors.items()})


def mask_of(real: np.ndarray) -> Bool[Tensor, "B S"] | None:
    """Which tokens of a padded batch are real, or None where all are."""
    return None if real.all() else torch.from_numpy(real)

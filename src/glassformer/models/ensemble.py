"""An ensemble: models of one kind from different random starts, asked together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Ensemble(nn.Module):
    """The mean of what several classifiers say.

    They differ in their random starts and in what dropout hides from each, err differently for it, and the mean
    of their probabilities errs less than they do (Hansen and Salamon 1990; Lakshminarayanan et al. 2017).
    Each learns from its own loss alone.

    Args:
        members: models that take the same arguments.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *args: Any, **kwargs: Any) -> Float[Tensor, "B C"]:
        """Logarithms of the mean probabilities, which serve as logits: softmax gives the mean back."""
        said = torch.stack([member(*args, **kwargs).float().log_softmax(dim=-1) for member in self.members])
        return said.logsumexp(dim=0) - torch.log(torch.tensor(float(len(self.members))))


def members_of(model: nn.Module) -> list[nn.Module]:
    """The models that learn by themselves: the members of an ensemble, or the one that there is."""
    return list(model.members) if isinstance(model, Ensemble) else [model]

"""Models that answer: in inference mode, and several of one kind together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.errors import UsageError


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients within the block; training mode is restored afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


class Ensemble(nn.Module):
    """The mean of what several models say of a text, or of the next token.

    They differ in their random starts and in what dropout hides from each, err differently for it, and the mean
    of their probabilities errs less than they do (Hansen and Salamon 1990; Lakshminarayanan et al. 2017).
    Each learns from its own loss alone.

    Args:
        members: models that take the same arguments.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    @property
    def max_len(self) -> int:
        """Return the maximum number of tokens that all members can read."""
        return min(int(member.max_len) for member in self.members)  # pyright: ignore[reportArgumentType]

    def forward(self, *args: Any, **kwargs: Any) -> Float[Tensor, "... V"]:
        """Return the `mean_logits` over classes or tokens, or the mean number."""
        return mean_logits([member(*args, **kwargs) for member in self.members])


def mean_logits(logits: Sequence[Float[Tensor, "... V"]]) -> Float[Tensor, "... V"]:
    """Return the logarithm of the mean of several models' probabilities, which serves as logits; of one its own.

    A single output is no choice among several: it is a number, whose mean is returned.
    """
    if len(logits) == 1:
        return logits[0].float()
    if logits[0].shape[-1] == 1:
        return torch.stack([each.float() for each in logits]).mean(dim=0)
    log_probs = torch.stack([each.float().log_softmax(dim=-1) for each in logits])
    return log_probs.logsumexp(dim=0) - math.log(len(logits))


def members_of(model: nn.Module) -> list[nn.Module]:
    """Return the models that are trained independently: an ensemble's members, or the model itself."""
    return list(model.members) if isinstance(model, Ensemble) else [model]


def member_of(model: nn.Module, number: int) -> nn.Module:
    """Return one model of an ensemble, counted from 0; a single model is its own member 0.

    Raises:
        UsageError: there are fewer members.
    """
    members = members_of(model)
    if not 0 <= number < len(members):
        kind = f"an ensemble of {len(members)}" if len(members) > 1 else "a single model"
        raise UsageError(f"there is no member {number}: this run is {kind}", "members are counted from 0")
    return members[number]

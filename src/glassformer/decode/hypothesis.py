"""What decoding returns, how its scores compare, and what search and sampling, which are elsewhere, share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import DivergedError

LEAVE_SHARE = 8
"""Rows that are done leave the batch when they are at least 1/8 of it: leaving copies the caches."""


class Special(NamedTuple):
    """The ids that are no text: what pads, begins and ends it."""

    pad: int
    bos: int
    eos: int


@dataclass(frozen=True)
class Hypothesis:
    """One text a model wrote."""

    ids: list[int]
    """Its tokens, without BOS and EOS; a forced prefix is part of them, a language model's prompt is not."""
    score: float
    """log_prob / length ** length_penalty, where length counts the EOS: what n-best lists are sorted by."""
    log_prob: float
    """Natural logarithm of its probability under the model, EOS included (nats)."""
    finished: bool
    """It ended with EOS; False when the length limit cut it."""


def length_penalties(longest: int, penalty: float) -> list[float]:
    """length ** penalty for the lengths 0 … longest: what a log-probability is divided by.

    A penalty of 0 compares log-probabilities as they are, which favours short texts; 1 compares their
    means over the tokens. (Wu et al. 2016, section 7, divide by ((5 + length) / 6) ** penalty instead.)
    """
    return [1.0] + [float(length) ** penalty for length in range(1, longest + 1)]


def active_rows(done: Bool[Tensor, " R"]) -> Int[Tensor, " R2"] | None:
    """The rows to go on with, or None for all: too few are done to be worth the copying."""
    n_done = int(done.sum())
    return None if n_done * LEAVE_SHARE < len(done) or not n_done else (~done).nonzero()[:, 0]


def refuse_nan(log_probs: Tensor) -> None:
    """Raise a DivergedError when the model's logits were not numbers."""
    if bool(log_probs.isnan().any()):
        raise DivergedError(
            "the model's logits are not numbers (NaN), so there is nothing to write",
            hint="the model diverged in training: use an earlier checkpoint, or train with a lower --lr",
        )

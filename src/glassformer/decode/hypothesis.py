"""Define what decoding returns, and the functions that search and sampling share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import DivergedError

COMPACT_SHARE = 8
"""Finished rows are removed from the batch when they are at least 1/8 of it, since removal copies the caches."""


class Special(NamedTuple):
    """The ids of the special tokens."""

    pad: int
    bos: int
    eos: int


@dataclass(frozen=True)
class Hypothesis:
    """A generated sequence.

    Attributes:
        ids: its tokens without BOS and EOS, with a forced prefix, without a language model's prompt.
        score: log_prob / length ** length_penalty, where length counts the EOS; n-best lists are sorted by it.
        log_prob: natural logarithm of its probability under the model, EOS included.
        finished: True if it ended with EOS, False if the length limit truncated it.
    """

    ids: list[int]
    score: float
    log_prob: float
    finished: bool


def length_penalties(longest: int, penalty: float) -> list[float]:
    """Return length ** penalty for the lengths 0 … longest, the divisors of log-probabilities.

    A penalty of 0 compares plain log-probabilities, which favours short sequences; 1 compares their means per token.
    (Wu et al. 2016, section 7, divide by ((5 + length) / 6) ** penalty instead.)
    """
    return [1.0] + [float(length) ** penalty for length in range(1, longest + 1)]


def active_rows(done: Bool[Tensor, " R"]) -> Int[Tensor, " R2"] | None:
    """Return the indices of unfinished rows, or None while fewer than 1/8 are finished."""
    n_done = int(done.sum())
    return None if n_done * COMPACT_SHARE < len(done) or not n_done else (~done).nonzero()[:, 0]


def refuse_nan(log_probs: Tensor) -> None:
    """Raise a DivergedError if a log-probability is NaN."""
    if bool(log_probs.isnan().any()):
        raise DivergedError(
            "the model's logits are NaN, so it cannot generate",
            hint="the model diverged in training: use an earlier checkpoint, or train with a lower --lr",
        )

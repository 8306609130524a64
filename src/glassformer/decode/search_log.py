"""What a beam search can be asked to tell: every candidate of every step. Nobody listening costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class SearchStep:
    """The k candidates of one step, best first, of each of the B sentences that are not done.

    Places that no candidate fills have a total of minus infinity.
    """

    sentence: Int[Tensor, " B"]
    """Number of the sentence in the caller's list."""
    parent: Int[Tensor, "B k"]
    """Row, among the live hypotheses of the step before, of the hypothesis that is extended."""
    token: Int[Tensor, "B k"]
    """What it is extended by."""
    log_prob: Float[Tensor, "B k"]
    """Log-probability of that token (nats)."""
    total: Float[Tensor, "B k"]
    """Log-probability of the whole hypothesis."""
    score: Float[Tensor, "B k"]
    """total / length ** length_penalty."""
    row: Int[Tensor, "B k"]
    """Row among the live hypotheses after this step; -1 when it does not live on."""
    finished: Bool[Tensor, "B k"]
    """It ended with EOS and counts as finished. Neither this nor a row: it is pruned."""


SearchLog: TypeAlias = Callable[[SearchStep], None]

"""Define the record of a beam-search step that a caller of `beam_search` can ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class SearchStep:
    """The k candidates of one step, best first, for each of the B unfinished sentences.

    Attributes:
        sentence: index of the sentence in the caller's list.
        parent: row, among the live hypotheses of the step before, of the extended hypothesis.
        token: the token it is extended by.
        log_prob: log-probability of that token.
        total: log-probability of the whole hypothesis; -inf where there are fewer than k candidates.
        score: total / length ** length_penalty.
        row: row among the live hypotheses after this step, -1 if it is not one of them.
        finished: whether it ended with EOS. A candidate that neither is finished nor has a row is pruned.
    """

    sentence: Int[Tensor, " B"]
    parent: Int[Tensor, "B k"]
    token: Int[Tensor, "B k"]
    log_prob: Float[Tensor, "B k"]
    total: Float[Tensor, "B k"]
    score: Float[Tensor, "B k"]
    row: Int[Tensor, "B k"]
    finished: Bool[Tensor, "B k"]


SearchLog: TypeAlias = Callable[[SearchStep], None]

"""What suits a set of labelled texts, from its size alone: batch, passes, dropout, learning rate, members.

Small sets are lost by too few updates as easily as by too many. The rules come from ablations on seven sets of 500 to
15,000 texts with 2 to 150 classes; what each is worth stands in RESULTS.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from glassformer.data.splits import Split
from glassformer.text.spelling import UNSPACED

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
LONGEST = 256
"""Words of a text that count: longer ones are cut."""
LONG = 60
"""Words in the mean from which texts are long: reviews, not sentences."""
UPDATES = 1000
"""About how many updates a small set needs; its batches are made small enough for them."""
MOST_TOKENS = 5_000_000
"""Tokens read in a whole run by one member: long texts get fewer passes, so that a run ends in minutes."""


@dataclass(frozen=True)
class Facts:
    """What the rules look at: how many texts, of how many classes, how many words in the mean."""

    n_texts: int
    n_classes: int
    n_words: float

    @staticmethod
    def of(train: Split) -> Facts:
        """The facts of a training split, its words counted in at most 2,000 texts."""
        some = train.text[:: max(1, len(train) // 2000)]
        n_words = sum(len(_WORD.findall(text)) for text in some) / max(1, len(some))
        return Facts(len(train), len(set(train.answers)), n_words)

    def __str__(self) -> str:
        return f"{self.n_texts:,} texts of {self.n_classes} classes, {self.n_words:.0f} words each"


def settings(facts: Facts) -> dict[str, Any]:
    """The settings by field; every rule in the order of its effect."""
    tokens = facts.n_texts * min(facts.n_words, LONGEST)
    epochs = min(10.0, max(1.0, MOST_TOKENS / max(1.0, tokens)))
    batch_size = int(min(32, max(8, facts.n_texts * epochs / UPDATES)))
    return {"epochs": round(epochs, 1), "batch_size": batch_size, "dropout": 0.2, "lr": 1e-3, "members": 3}

"""What suits a set of pairs of sentences, from its size alone: vocabulary, updates, batch, dropout.

Little text wants a small vocabulary, small batches and much noise (Sennrich and Zhang 2019, "Revisiting Low-Resource
Neural Machine Translation"); how much of each follows the number of pairs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from glassformer.data.splits import Split


@dataclass(frozen=True)
class Facts:
    """What the rules look at: how many pairs, of how many characters in the mean, source and target together, and how
    many different characters are common."""

    n_pairs: int
    n_characters: float
    n_letters: int

    @staticmethod
    def of(train: Split) -> Facts:
        """The facts of a training split, characters counted in about 2,000 pairs."""
        places = range(0, len(train), max(1, len(train) // 2000))
        counts = Counter[str]()
        for i in places:
            counts.update(train.text[i])
            counts.update(train.answers[i])
        n_letters = sum(n > 1 for n in counts.values())
        return Facts(len(train), counts.total() / max(1, len(places)), n_letters)

    def __str__(self) -> str:
        return f"{self.n_pairs:,} pairs, {self.n_characters:.0f} characters each, {self.n_letters:,} letters"


def settings(facts: Facts) -> dict[str, Any]:
    """The settings by field.

    - The vocabulary holds the bytes, the letters, and pieces that grow with the root of the pairs, so that each is
      seen often enough to be learned.
    - Passes: a hundred over a thousand pairs, fewer the more there are, within 6,000 updates; batches are halved
      where that many updates would otherwise not come together.
    - Dropout and BPE-dropout are strong where there is little to learn from.
    """
    n = max(1, facts.n_pairs)
    pieces = min(8000, 3600 * (n / 29_000) ** 0.5)
    small = n < 15_000
    tokens = n * max(8.0, facts.n_characters / 2) / 4  # of a target; four characters a token, about
    max_tokens = 1024 if small else 2048
    passes = min(100.0, max(4.0, 100 * (1000 / n) ** 0.6))
    return {
        "vocab_size": int(round(300 + facts.n_letters + pieces, -2)),
        "steps": int(min(6000, max(600, passes * tokens / max_tokens))),
        "max_tokens": max_tokens,
        "dropout": 0.3 if small else 0.2 if n < 200_000 else 0.1,
        "bpe_dropout": 0.1 if n < 200_000 else 0.0,
    }

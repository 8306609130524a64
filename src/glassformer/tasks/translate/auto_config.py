"""What suits a set of pairs of sentences, from its size alone: vocabulary, passes, batch, width, dropout.

Few pairs are read often, in small batches, by a narrow model with much dropout; many pairs a few times by a wider one.
RESULTS.md has what cuts of Multi30k say of it.
"""

from __future__ import annotations

from typing import Any

FEW, MANY = 10_000, 100_000
"""Pairs below which a set is small, and from which it is large."""


def suggest(n_pairs: int) -> dict[str, Any]:
    """Return the suggested settings by field.

    - Vocabulary: 6,000 pieces, so that most words of a small set are one piece, and more by a power of the size.
    - Passes: sixty over a thousand pairs, fewer the more there are. Loss on validation is lowest after a third of the
      sixty; BLEU, which chooses the weights, rises almost to the last.
    - Batches of half as many tokens where there are few pairs, for enough steps.
    """
    n = max(1, n_pairs)
    return {
        "vocab_size": int(min(32_000, max(6000, round(6000 * (n / FEW) ** 0.35, -2)))),
        "epochs": round(min(60.0, max(1.0, 60 * (1000 / n) ** 0.43)), 1),
        "max_tokens": 1024 if n < FEW else 2048 if n < MANY else 4096,
        "d_model": 128 if n < FEW else 192 if n < MANY else 256,
        "dropout": 0.3 if n < FEW else 0.2 if n < MANY else 0.1,
    }

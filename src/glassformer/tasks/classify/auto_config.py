"""What suits a set of labelled texts, from its size alone: passes, batch, learning rate, dropout, members.

Small sets are lost by too few steps as easily as by too many. The rules come from ablations on sets of 500 to 15,000
texts with 2 to 150 classes; RESULTS.md has those that were measured with this code.
"""

from __future__ import annotations

from typing import Any

LONG = 60
"""Words in the mean from which texts are long: reviews, not sentences."""
LONGEST = 512
"""Words of a text that count: longer ones are cut."""
STEPS, MIN_STEPS = 1000, 600
"""About how many steps a small set needs, and at least, where it is soon learned by heart; batches are made small
enough."""
BIGRAMS = 100_000
"""Most pairs of words with vectors of their own."""
MAX_TOKENS, MAX_STEPS = 4_500_000, 6000
"""Tokens that all members together read in a run, and their steps: about three minutes on two cores, adversarial
training counted. One member reads what its passes take, though it be more."""


def suggest(n_texts: int, n_classes: int, n_words: float) -> dict[str, Any]:
    """Return the suggested settings by field, for texts of `n_words` words in the mean.

    - Passes: ten over a small set, fewer the larger it is. Two classes of short texts are soon
      learned by heart; so they get six passes at most, at half the rate, and more dropout.
    - Batches of 8 to 32 texts, so that there are about a thousand steps; of short ones in several classes up to 64.
    - Three members where they are quickly trained, one of long texts in numbers.
    - Pairs of words for long texts and for two classes: opinions are said in pairs ("not good"), topics in words.
    """
    n, long = max(1, n_texts), n_words >= LONG
    two_short = n_classes <= 2 and not long
    by_size = 10 * (500 / n) ** 0.4 if long else 10 * (15_000 / n) ** 0.5
    epochs = max(1.0, min(6.0, STEPS * 32 / n) if two_short else min(10.0, by_size))
    steps = MIN_STEPS if two_short else STEPS
    tokens = epochs * n * max(1.0, min(n_words, LONGEST))
    batch_size = int(min(32 if long or two_short else 64, max(8, n * epochs / steps)))
    members = min(MAX_TOKENS // tokens, MAX_STEPS * batch_size // (n * epochs))
    return {
        "epochs": round(epochs, 1),
        "batch_size": batch_size,
        "lr": 5e-4 if two_short else 1e-3,
        "dropout": 0.2,
        "embedding_dropout": 0.3 if two_short else 0.2,
        "bigrams": BIGRAMS if long or n_classes <= 2 else 0,
        "ensemble_size": int(min(3, max(1, members))),
    }

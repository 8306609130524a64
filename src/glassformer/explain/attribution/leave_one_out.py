"""Attribute by leave-one-out: erase one word at a time and measure the drop of the explained quantity."""

from __future__ import annotations

import numpy as np

from glassformer.explain.attribution.value_function import ValueFunction


def leave_one_out(value_fn: ValueFunction) -> dict[str, list[float]]:
    """Return the score of each token by stream: its share of the drop when its word is erased.

    All tokens of a word are erased together and share the drop equally, so the scores of a word's tokens sum to it.
    Scores of different words need not sum to anything: of two words with one meaning, erasing either changes little.
    """
    n = value_fn.n_words
    values = value_fn.values(np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)]))
    return value_fn.spread_over_tokens(values[0] - values[1:])

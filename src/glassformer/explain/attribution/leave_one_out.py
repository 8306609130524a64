"""Erasing words one at a time: what the model says without each of them, the plainest attribution there is.

It asks the model once a word and never about words together; `faithfulness.py` does that.
"""

from __future__ import annotations

import numpy as np

from glassformer.explain.attribution.value_function import ValueFunction


def leave_one_out(question: ValueFunction) -> dict[str, list[float]]:
    """For each token its share of the fall of the number asked for when its word is erased.

    All tokens of a word are erased together, since half a word is no word, and share the word's fall
    equally: the scores of a word's tokens add up to the fall. Scores of different words need not add up to
    anything; where two words say the same, erasing either alone changes little.
    """
    n = question.n_words
    values = question.values(np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)]))
    return question.spread(values[0] - values[1:])

"""Several classifiers as one: the mean of their probabilities, as a rule right more often than any of them.

What one seed gets wrong by chance the others rarely get wrong as well (Hansen and Salamon 1990). Here it is read from
what each has said of a test; models that answer together are averaged alike, in `models/ensemble.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.evaluate.classification import score


def score_of_mean(predictions: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The scores, as `evaluate.classification.score` has them, of the mean of several classifiers.

    Args:
        predictions: of each its answers to the same texts, in one order, each with the true label, `truth`.
    """
    names = list(predictions[0][0]["probabilities"])
    number = {name: i for i, name in enumerate(names)}
    said = np.array(
        [[[row["probabilities"][name] for name in names] for row in rows] for rows in predictions]
    )
    return score([number[row["truth"]] for row in predictions[0]], said.mean(axis=0), names)

"""Several classifiers as one: the mean of their probabilities, as a rule right more often than any of them.

What one seed gets wrong by chance the others rarely get wrong as well (Hansen and Salamon 1990). The models of one
folder are averaged alike while they answer: `models/ensemble.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.evaluate.classification import score


def mean_answer(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What classifiers of the same labels say of one text together: label, probability and probabilities.

    Args:
        answers: one of each, with probabilities by label.
    """
    names = answers[0]["probabilities"]
    mean = {name: sum(each["probabilities"][name] for each in answers) / len(answers) for name in names}
    label = max(mean, key=mean.__getitem__)
    return {"label": label, "probability": mean[label], "probabilities": mean}


def score_of_mean(predictions: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The scores, as `evaluate.classification.score` has them, of the mean of several classifiers.

    Args:
        predictions: of each its answers to the same texts, in one order, each with the true label, `truth`.
    """
    names = list(predictions[0][0]["probabilities"])
    number = {name: i for i, name in enumerate(names)}
    means = [mean_answer(answers)["probabilities"] for answers in zip(*predictions, strict=True)]
    truth = [number[row["truth"]] for row in predictions[0]]
    return score(truth, np.array([[mean[name] for name in names] for mean in means]), names)

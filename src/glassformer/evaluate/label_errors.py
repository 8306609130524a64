"""Probable label errors: what a model that has not seen an example says of its label.

A linear model is fitted to four fifths of the examples and judges the rest; equal texts are in one fifth, so that no
text is judged by a copy of itself. A temperature calibrates its probabilities (Guo et al. 2017), and Bayes' rule says
what they mean for a label. Where a share e of the labels was replaced by those of other examples, drawn at random, a
label with probability p that n of N examples have is wrong with probability w / (w + (1 − e) p), w = e (1 − p) n / N.

Confident learning (Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR
70, 2021) estimates e for each pair of classes, and lists as many examples. On ambiguous texts that is too many: a sixth
of all tweets with an emotion. Here e is assumed; it, `LISTED_FROM` and the penalty were chosen on seed 0 of
`benchmarks/audit.py` and on made texts.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import StratifiedGroupKFold

TEXT_MODEL = LogisticRegression(C=8.0, max_iter=100)
WORD_MODEL = SGDClassifier(loss="log_loss", alpha=1e-6, max_iter=5, n_iter_no_change=5, average=True, random_state=0)
"""Judges words, of which there are many more than texts."""
FOLDS = 5
FEWEST = 2 * FOLDS
"""Examples of a label below which the model has seen too few of them to judge one."""
ASSUMED = 0.07
"""Share of the labels that are taken to be replaced."""
LISTED_FROM = 0.2
"""Probability from which a label is listed as wrong."""
TEMPERATURES = np.geomspace(0.2, 3.0, 28)


class NotMade(Exception):
    """A check has nothing to go by; the message says why."""


def judge_labels(
    x: Any, labels: Int[np.ndarray, " N"], groups: Int[np.ndarray, " N"], model: Any = TEXT_MODEL
) -> tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Return the probability that each label is wrong, 0 where it is not listed, and the most probable class.

    Args:
        x: features of the examples, a row each.
        labels: classes 0…C−1, each of which occurs.
        groups: number of the group of each example; equal texts, which are judged by the same model.
        model: a classifier of scikit-learn that gives probabilities.

    Raises:
        NotMade: there are too few examples, or the features do not separate the labels.
    """
    sizes = np.bincount(labels)
    if (sizes >= FEWEST).sum() < 2:
        raise NotMade(f"two labels need {FEWEST} examples each")
    if len(np.unique(groups)) < FOLDS:
        raise NotMade(f"too few different texts for {FOLDS} folds")
    p = calibrated(_out_of_fold(x, labels, groups, model), labels)
    suggested = p.argmax(axis=1)
    if (suggested == labels).mean() <= sizes.max() / len(labels):
        raise NotMade("a model of the words is right no more often than the most frequent label")
    return doubted_labels(p, labels), suggested


def doubted_labels(p: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the probabilities that labels are wrong, given those of the classes; 0 for those that are not listed."""
    n, sizes = len(labels), np.bincount(labels)
    own = p[np.arange(n), labels]
    replaced = ASSUMED * (1 - own) * sizes[labels] / n
    score = replaced / np.maximum(replaced + (1 - ASSUMED) * own, 1e-300)
    return np.where((p.argmax(axis=1) != labels) & (sizes[labels] >= FEWEST) & (score >= LISTED_FROM), score, 0.0)


def _out_of_fold(x: Any, labels: np.ndarray, groups: np.ndarray, model: Any) -> Float[np.ndarray, "N C"]:
    """Return the probabilities of each example by the model of the other folds; a group is in one fold as a whole."""
    p = np.zeros((len(labels), int(labels.max()) + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": more steps change no order of the scores
        for others, held in StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0).split(x, labels, groups):
            if not len(held) or len(np.unique(labels[others])) < 2:
                raise NotMade(f"too few different texts for {FOLDS} folds with two labels in each")
            fitted = cast(Any, clone(model)).fit(x[others], labels[others])
            p[np.ix_(held, fitted.classes_)] = fitted.predict_proba(x[held])
    return p


def calibrated(p: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N C"]:
    """Return the probabilities at the temperature with the least log loss."""
    logs, rows = np.log(np.maximum(p, 1e-12)), np.arange(len(labels))

    def loss(temperature: float) -> float:
        return -np.log(np.maximum(softmax(logs / temperature, axis=1)[rows, labels], 1e-6)).mean()

    return softmax(logs / min(TEMPERATURES, key=loss), axis=1)

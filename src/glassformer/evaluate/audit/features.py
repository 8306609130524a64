"""What the labels of an audit are judged by: TF-IDF of texts, pooled vectors of a model, and windows around words.

Each kind of features says which of the examples are fitted, gives their rows, and fits a linear model to some of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from glassformer.evaluate.baselines import (
    MAX_TRAIN,
    WINDOW_ALPHAS,
    bag_of_words_vectorizer,
    fit_window,
    window_features,
)

PENALTIES = (4.0, 16.0)
"""Inverse strengths of the L2 penalty on TF-IDF; the one with the least log loss on the first fold is taken."""
VECTOR_PENALTIES = (0.003, 0.01, 0.03)
"""The same on pooled vectors with a mean square of 1."""
SET_PENALTIES = (16.0, 64.0, 256.0)
"""On TF-IDF where each of several labels has a model of its own, which few texts fit: a weaker penalty suits it."""
PASSES = 5
"""Passes of stochastic gradient descent over the words that are fitted."""


def sampled(n: int, most: int) -> np.ndarray:
    """Return the numbers below n in order, or a random `most` of them."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def fit_logistic(x: Any, labels: np.ndarray, penalty: float) -> Any:
    """Return a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": more steps change no order of the scores
        return LogisticRegression(C=penalty, max_iter=100).fit(x, labels)


class TextFeatures:
    """TF-IDF of texts as in the baseline; of more than `MAX_TRAIN` texts, a sample is fitted and the rest only read."""

    penalties, set_penalties = PENALTIES, SET_PENALTIES
    fit = staticmethod(fit_logistic)

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.fitted = sampled(len(texts), MAX_TRAIN)
        chosen = [texts[int(i)] for i in self.fitted]
        self.vectorizer = bag_of_words_vectorizer(chosen)
        self.matrix, self.holds_all = self.vectorizer.fit_transform(chosen), len(chosen) == len(texts)

    def rows(self, index: np.ndarray) -> Any:
        """Return the features of texts."""
        if self.holds_all:
            return self.matrix[index]
        where = np.minimum(np.searchsorted(self.fitted, index), len(self.fitted) - 1)
        if (self.fitted[where] == index).all():
            return self.matrix[where]
        return self.vectorizer.transform([self.texts[i] for i in index])


class VectorFeatures:
    """Pooled vectors, centred and with a mean square of 1."""

    penalties = set_penalties = VECTOR_PENALTIES
    fit = staticmethod(fit_logistic)

    def __init__(self, vectors: Float[np.ndarray, "N P"]) -> None:
        centred = vectors - vectors.mean(axis=0)
        self.matrix = centred / max(float(np.sqrt(np.square(centred).mean())), 1e-12)
        self.fitted = sampled(len(vectors), MAX_TRAIN)

    def rows(self, index: np.ndarray) -> Any:
        """Return the vectors of texts."""
        return self.matrix[index]


class WindowFeatures:
    """Each word with its neighbours, as in the baseline of tags; of very many, those of some sentences are fitted."""

    penalties = WINDOW_ALPHAS[1:]

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        self.matrix = window_features(sentences)
        self.fitted = np.arange(self.matrix.shape[0])
        if len(self.fitted) > MAX_TRAIN:
            sentence = np.repeat(np.arange(len(sentences)), [len(words) for words in sentences])
            share = MAX_TRAIN / len(self.fitted)
            self.fitted = np.flatnonzero((np.random.default_rng(0).random(len(sentences)) < share)[sentence])

    def rows(self, index: np.ndarray) -> Any:
        """Return the features of words."""
        return self.matrix[index]

    def fit(self, x: Any, labels: np.ndarray, penalty: float) -> Any:
        """Return a logistic regression by stochastic gradient descent."""
        return fit_window(x, labels, penalty, PASSES)


OfTexts: TypeAlias = TextFeatures | VectorFeatures
Features: TypeAlias = OfTexts | WindowFeatures


def text_features(texts: Sequence[str], vectors: Float[np.ndarray, "N P"] | None = None) -> OfTexts:
    """Return the features of texts: vectors that a model gave, or else TF-IDF.

    Raises:
        ValueError: the texts hold no words.
    """
    return TextFeatures(texts) if vectors is None else VectorFeatures(vectors)

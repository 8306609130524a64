"""Probable label errors by confident learning on out-of-fold probabilities (Northcutt, Jiang and Chuang 2021).

A logistic regression, fitted to the other four fifths of the examples, gives each example the probabilities of its
classes, calibrated by a temperature. A class's threshold is the mean probability of the class over its own examples; an
example that reaches the threshold of another class, and not that of its own, is counted off the diagonal of the
confident joint ("Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 70, section 3.1). Their share
estimates the share e of wrong labels.

Departure from the paper, which lists as many examples: on ambiguous texts that is too many, a sixth of all tweets with
an emotion. Where a share e of labels was replaced by those of other examples, a label y with probability p, of a text
that is probably of class k, is wrong with probability w / (w + (1 − e) p), w = e (1 − p) n_y / (N − n_k); a label is
listed from `LISTED_FROM`. It and `SHARES` were chosen on seed 0 of `benchmarks/audit.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from glassformer.evaluate.classification import MAX_TRAIN, bag_of_words_vectorizer

FOLDS = 5
SHARES = (0.02, 0.05)
"""Least and largest share of wrong labels that is assumed; some off the diagonal are only ambiguous."""
LISTED_FROM = 0.2
"""Probability from which a label is listed as wrong."""
FEWEST = 2 * FOLDS
"""Examples of a label below which the model has seen too few of them to judge one."""
PENALTIES = (4.0, 16.0)
"""Inverse strengths of the L2 penalty on TF-IDF; the one with the least log loss on the first fold is taken."""
VECTOR_PENALTIES = (0.003, 0.01, 0.03)
"""The same on pooled vectors with a mean square of 1."""
TEMPERATURES = np.geomspace(0.2, 3.0, 28)
"""Temperatures to choose from, also by log loss: then the list hardly depends on the penalty."""
TEMPERED = 10_000
"""Examples on which the temperature is chosen."""
CHUNK = 4096
"""Texts whose features are in memory at a time, beyond those that are fitted."""


class Judgement(NamedTuple):
    """What the model thinks of the labels.

    Attributes:
        score: (N,) probability that the label is wrong.
        suggested: (N,) the most probable class.
        listed: (N,) whether the label is listed as a probable error.
        facts: accuracy on the labels as they are, that of the most frequent label, candidates, assumed share of errors,
            penalty, temperature, and examples of labels with too few to judge.
    """

    score: Float[np.ndarray, " N"]
    suggested: Int[np.ndarray, " N"]
    listed: Bool[np.ndarray, " N"]
    facts: dict[str, float]


def judge_labels(
    texts: Sequence[str],
    labels: Int[np.ndarray, " N"],
    groups: Int[np.ndarray, " N"],
    vectors: Float[np.ndarray, "N P"] | None = None,
) -> Judgement | str:
    """Return which labels are probably wrong, or why that cannot be judged.

    Args:
        texts: the texts, read by their TF-IDF.
        labels: classes 0…C−1, each of which occurs.
        groups: number of the group of each example; equal texts, which are judged by the same model.
        vectors: pooled vectors of a model, read in place of the texts.
    """
    if (n_classes := int(labels.max()) + 1) < 2:
        return "all texts have one label"
    if (most := int(np.bincount(labels).max())) < FEWEST:
        return f"a label needs {FEWEST} examples to be judged, and no label has more than {most}"
    folds = stratified_folds(labels, groups)
    if any(len(np.unique(labels[folds != fold])) < 2 or not (folds == fold).any() for fold in range(FOLDS)):
        return f"too few different texts for {FOLDS} folds with two labels in each"
    try:
        features = _TextFeatures(texts) if vectors is None else _VectorFeatures(vectors)
    except ValueError:  # "empty vocabulary"
        return "the texts hold no words"
    probabilities, penalty = out_of_fold(features, labels, folds, n_classes)
    probabilities, temperature = calibrated(probabilities, labels)
    suggested = probabilities.argmax(axis=1)
    score, listed, n_candidates, share = confident_learning(probabilities, labels)
    facts = {
        "accuracy": float((suggested == labels).mean()),
        "most_frequent": float(np.bincount(labels).max() / len(labels)),
        "candidates": n_candidates,
        "share": share,
        "penalty": penalty,
        "temperature": temperature,
        "unjudged": int((np.bincount(labels)[labels] < FEWEST).sum()),
    }
    return Judgement(score, suggested, listed, facts)


def stratified_folds(labels: Int[np.ndarray, " N"], groups: Int[np.ndarray, " N"], seed: int = 0) -> np.ndarray:
    """Return the fold of each example: the same share of each label in each, and a group as a whole.

    A group counts for the label of its first example.
    """
    numbers, first = np.unique(groups, return_index=True)
    order = np.random.default_rng([seed, len(labels)]).permutation(len(numbers))
    order = order[np.argsort(labels[first[order]], kind="stable")]
    fold_of = np.empty(len(numbers), dtype=np.int64)
    fold_of[order] = np.arange(len(numbers)) % FOLDS
    return fold_of[np.searchsorted(numbers, groups)]


def confident_learning(
    probabilities: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]
) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Return for each example the probability that its label is wrong and if it is listed; candidates and share."""
    n, n_classes = probabilities.shape
    own, sizes = probabilities[np.arange(n), labels], np.bincount(labels, minlength=n_classes)
    thresholds = np.where(sizes < FEWEST, np.inf, np.bincount(labels, own, n_classes) / np.maximum(sizes, 1))
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    predicted, confident = probabilities.argmax(axis=1), reached.argmax(axis=1)
    doubted = (predicted != labels) & (sizes[labels] >= FEWEST)
    n_candidates = int((doubted & (reached.max(axis=1) > 0) & (confident != labels)).sum())
    share = min(max(n_candidates / n, SHARES[0]), SHARES[1])
    replaced = share * (1 - own) * sizes[labels] / np.maximum(n - sizes[predicted], 1)
    score = replaced / np.maximum(replaced + (1 - share) * own, 1e-300)
    return score, doubted & (score >= LISTED_FROM), n_candidates, share


def out_of_fold(
    features: _TextFeatures | _VectorFeatures, labels: Int[np.ndarray, " N"], folds: np.ndarray, n_classes: int
) -> tuple[Float[np.ndarray, "N C"], float]:
    """Return the probabilities of each example by the model of the other folds, and the penalty."""
    probabilities, penalty = np.zeros((len(labels), n_classes)), features.penalties[0]
    for fold in range(FOLDS):
        fitted = features.fitted[folds[features.fitted] != fold]
        x = features.rows(fitted)
        models = [_fit(x, labels[fitted], c) for c in (features.penalties if fold == 0 else [penalty])]
        held = np.flatnonzero(folds == fold)
        each = [np.zeros((len(held), n_classes)) for _ in models]
        for start in range(0, len(held), CHUNK):
            chunk = features.rows(held[start : start + CHUNK])
            for model, out in zip(models, each, strict=True):
                out[start : start + CHUNK, model.classes_] = model.predict_proba(chunk)
        losses = [-np.log(np.maximum(p[np.arange(len(held)), labels[held]], 1e-6)).mean() for p in each]
        best = int(np.argmin(losses))
        probabilities[held] = each[best]
        if fold == 0:
            penalty = features.penalties[best]
    return probabilities, penalty


def calibrated(
    probabilities: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "N C"], float]:
    """Return the probabilities at the temperature with the least log loss (Guo et al. 2017), and that temperature."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    some = np.arange(len(labels))
    if len(some) > TEMPERED:
        some = np.sort(np.random.default_rng(0).choice(len(labels), TEMPERED, replace=False))

    def at(temperature: float, rows: np.ndarray) -> np.ndarray:
        scaled = rows / temperature
        scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return scaled / scaled.sum(axis=1, keepdims=True)

    losses = [
        -np.log(np.maximum(at(t, logs[some])[np.arange(len(some)), labels[some]], 1e-6)).mean() for t in TEMPERATURES
    ]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    return at(temperature, logs), temperature


class _TextFeatures:
    """TF-IDF of texts as in the baseline; of more than `MAX_TRAIN` texts, a sample is fitted and the rest only read."""

    penalties = PENALTIES

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts, n = texts, len(texts)
        self.fitted = np.arange(n)
        if n > MAX_TRAIN:
            self.fitted = np.sort(np.random.default_rng(0).choice(n, MAX_TRAIN, replace=False))
        chosen = [texts[i] for i in self.fitted.tolist()]
        self.vectorizer = bag_of_words_vectorizer(chosen)
        self.matrix = self.vectorizer.fit_transform(chosen)

    def rows(self, index: np.ndarray) -> Any:
        """Return the features of texts."""
        if len(self.fitted) == len(self.texts):
            return self.matrix[index]
        where = np.minimum(np.searchsorted(self.fitted, index), len(self.fitted) - 1)
        if (self.fitted[where] == index).all():
            return self.matrix[where]
        return self.vectorizer.transform([self.texts[i] for i in index])


class _VectorFeatures:
    """Pooled vectors, centred and with a mean square of 1."""

    penalties = VECTOR_PENALTIES

    def __init__(self, vectors: Float[np.ndarray, "N P"]) -> None:
        centred = vectors - vectors.mean(axis=0)
        self.matrix = centred / max(float(np.sqrt(np.square(centred).mean())), 1e-12)
        self.fitted = np.arange(len(vectors))
        if len(vectors) > MAX_TRAIN:
            self.fitted = np.sort(np.random.default_rng(0).choice(len(vectors), MAX_TRAIN, replace=False))

    def rows(self, index: np.ndarray) -> Any:
        """Return the vectors of texts."""
        return self.matrix[index]


def _fit(x: Any, labels: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": more steps change no order of the scores
        return LogisticRegression(C=penalty, max_iter=100).fit(x, labels)

"""What a score has to be held against: always guessing the majority class, and a bag of words; and a hybrid of both.

They are fitted on the same training texts and scored on the same test texts as the Transformer. They are
yardsticks, not models to ship: nothing here is saved.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from glassformer.errors import DataError
from glassformer.evaluate.significance import wilson_interval
from glassformer.text.ngrams import mostly_unspaced

MAX_TRAIN = 100_000
"""Most training texts the bag of words is fitted on; counting word pairs takes memory in proportion."""
PENALTIES = (1.0, 4.0, 16.0, 64.0)
"""Inverse strengths of the L2 penalty, tried on a tenth of the training texts."""

CHARACTERS = "one, two and three characters (the texts are in a script without spaces)"


def fit_baselines(
    train_texts: Sequence[str],
    train_labels: Sequence[int],
    test_texts: Sequence[str],
    test_labels: Sequence[int],
    model_probabilities: Float[np.ndarray, "N C"] | None = None,
) -> dict[str, dict[str, Any]]:
    """Fit and score the baselines of a classifier, on what the Transformer was trained and is scored on.

    Args:
        train_texts: texts to fit on.
        train_labels: their class indices.
        test_texts: texts to score on.
        test_labels: their class indices, used only to score.
        model_probabilities: the Transformer's probabilities of the test texts.

    Returns:
        `majority` and `tfidf_logistic`, each with accuracy, ci95 (Wilson), macro_f1 and settings in words.
        The second is absent if it cannot be fitted: only one class, or no words at all. With `model_probabilities`,
        `hybrid` is the mean of its probabilities and the Transformer's.

    Raises:
        DataError: no training or no test examples, or texts and labels of unequal number.
    """
    for part, texts, labels in (("training", train_texts, train_labels), ("test", test_texts, test_labels)):
        if len(texts) != len(labels) or not len(texts):
            got = f"{len(texts)} texts and {len(labels)} labels"
            raise DataError(f"Baselines need {part} examples: got {got}.")
    y_train, y_test = np.asarray(train_labels), np.asarray(test_labels)
    baselines = {"majority": _majority(y_train, y_test)}
    n_classes = (
        1 + int(max(y_train.max(), y_test.max())) if model_probabilities is None else model_probabilities.shape[1]
    )
    if bag_of_words := _tfidf_logistic(train_texts, y_train, test_texts, n_classes):
        probabilities, facts = bag_of_words
        baselines["tfidf_logistic"] = _scored(probabilities.argmax(axis=1), y_test) | facts
        if model_probabilities is not None:
            mean = (probabilities + model_probabilities) / 2
            settings = "the mean of the model's probabilities and the logistic regression's"
            baselines["hybrid"] = _scored(mean.argmax(axis=1), y_test) | {"settings": settings}
    return baselines


def _majority(y_train: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    """Guess the commonest training label, the smallest number among equals."""
    label = int(np.bincount(y_train).argmax())
    facts = {"label": label, "settings": "always the commonest label of the training texts"}
    return _scored(np.full_like(y_test, label), y_test) | facts


def _tfidf_logistic(
    train_texts: Sequence[str], y_train: np.ndarray, test_texts: Sequence[str], n_classes: int
) -> tuple[Float[np.ndarray, "N C"], dict[str, Any]] | None:
    """Fit logistic regression on TF-IDF of words and word bigrams; return probabilities and settings.

    None if there is nothing to fit. In scripts without spaces a "word" would be a clause that never recurs, and the
    baseline too weak; there the features are character 1- to 3-grams.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    started = time.perf_counter()
    rng = np.random.default_rng(0)
    if len(train_texts) > MAX_TRAIN:
        kept = np.sort(rng.choice(len(train_texts), MAX_TRAIN, replace=False))
        train_texts = list(map(train_texts.__getitem__, kept))
        y_train = y_train[kept]
    if len(np.unique(y_train)) < 2:
        return None
    n = len(train_texts)
    min_df = 5 if n >= 10_000 else 2 if n >= 1_000 else 1
    characters = mostly_unspaced(train_texts)
    counted = CHARACTERS if characters else "words and word pairs"
    units: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)}
    if not characters:  # words of one letter too, so that no text with words is empty
        units = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
    vectorizer = TfidfVectorizer(
        **units,
        min_df=min_df,
        sublinear_tf=True,  # 1 + log(count): the tenth "great" of a review says less than the first
        dtype=np.float32,  # pyright: ignore[reportArgumentType]  (half the memory)
    )
    try:
        x_train = vectorizer.fit_transform(train_texts)
    except ValueError:  # "empty vocabulary": texts without a single word
        return None
    model, penalty = _fit_logistic(x_train, y_train, rng)
    probabilities = np.zeros((len(test_texts), n_classes))
    probabilities[:, model.classes_] = model.predict_proba(vectorizer.transform(test_texts))
    return probabilities, {
        "n_train": n,
        "n_features": int(x_train.shape[1]),
        "settings": f"TF-IDF of {counted} seen in at least {min_df} text{'s' * (min_df > 1)}, sublinear counts; "
        f"logistic regression, L2, C = {penalty:g} chosen on a tenth of the {n:,} training texts",
        "seconds": round(time.perf_counter() - started, 1),
    }


def _fit_logistic(x: Any, y: np.ndarray, rng: np.random.Generator) -> tuple[Any, float]:
    """Choose the penalty on a held-out tenth of the training texts, then fit on all of them."""
    from sklearn.linear_model import LogisticRegression

    order = rng.permutation(len(y))
    held, rest = order[: len(y) // 10], order[len(y) // 10 :]
    penalty = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": a yardstick need not be exact to the last digit
        if len(held) >= 20 and len(np.unique(y[rest])) > 1:
            accuracies = [
                LogisticRegression(C=c, max_iter=500).fit(x[rest], y[rest]).score(x[held], y[held]) for c in PENALTIES
            ]
            penalty = PENALTIES[int(np.argmax(accuracies))]
        return LogisticRegression(C=penalty, max_iter=500).fit(x, y), penalty


def _scored(predicted: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    """Return accuracy with its interval, and macro F1 over the classes that occur or are predicted."""
    from sklearn.metrics import f1_score

    n_right = int((predicted == y_test).sum())
    return {
        "accuracy": n_right / len(y_test),
        "ci95": wilson_interval(n_right, len(y_test)),
        "macro_f1": float(f1_score(y_test, predicted, average="macro")),
    }

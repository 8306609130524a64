"""Scores of a classifier: how often it is right, for which classes, and if its confidence can be trusted.

It takes labels and probabilities and returns one JSON-ready dict. The bag-of-words baselines that stand
beside these numbers are in `fit_baselines` below; pictures of them in `tasks/classify_report.py`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from glassformer.errors import DataError
from glassformer.evaluate.significance import wilson_interval
from glassformer.text.decision import COLDEST, HOTTEST, at_temperature
from glassformer.text.ngrams import mostly_unspaced
from glassformer.text.pairs import split_pairs

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

N_BINS = 15
"""Bins of the reliability diagram, as in Guo et al. 2017."""
N_COVERAGES = 20
"""Steps of the coverage curve."""
FEWEST_TO_CALIBRATE = 50
"""Validation texts from which a temperature is fitted to them."""


def score(labels: Sequence[int] | np.ndarray, probabilities: np.ndarray, label_names: list[str]) -> dict[str, Any]:
    """Score a classifier's probabilities against the true labels.

    Args:
        labels: (N,) class numbers.
        probabilities: (N, C), each row a distribution over the classes.
        label_names: the C names, in class order.

    Returns:
        n; accuracy with ci95 (Wilson); macro_f1 (over classes that occur or are predicted); log_loss in nats;
        roc_auc (for two classes of the second; for more, the mean of one-against-the-rest; None when only one
        class occurs); ece and its calibration bins; the coverage curve; per_class; confusion (rows true, columns
        predicted).

    Raises:
        DataError: nothing to score, sizes that do not fit together, a label out of range, or NaN.
    """
    from sklearn.metrics import confusion_matrix

    truth, probabilities = _checked(labels, probabilities, label_names)
    predicted = probabilities.argmax(axis=1)
    n, n_right = len(truth), int((predicted == truth).sum())
    per_class, macro_f1 = _per_class(truth, predicted, label_names)
    ece, bins = calibration(truth, probabilities)
    of_truth = probabilities[np.arange(n), truth]
    return {
        "n": n,
        "accuracy": n_right / n,
        "ci95": wilson_interval(n_right, n),
        "macro_f1": macro_f1,
        "log_loss": float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean()),
        "roc_auc": roc_auc(truth, probabilities),
        "ece": ece,
        "label_names": list(label_names),
        "per_class": per_class,
        "confusion": confusion_matrix(truth, predicted, labels=np.arange(len(label_names))).tolist(),
        "calibration": bins,
        "coverage": coverage_curve(truth, probabilities),
    }


def roc_auc(truth: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the chance that a random member of a class is ranked above a random non-member.

    Two classes: of the second class. More: the mean over the classes that occur, each against the rest.
    None when it is undefined, because all examples are of one class.
    """
    from sklearn.metrics import roc_auc_score

    present = np.unique(truth)
    if len(present) < 2:
        return None
    classes = [1] if probabilities.shape[1] == 2 else present
    return float(np.mean([roc_auc_score(truth == c, probabilities[:, c]) for c in classes]))


def calibration(truth: np.ndarray, probabilities: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Compare confidence with accuracy in bins of equal width (Guo et al. 2017, section 2).

    Returns:
        The expected calibration error, i.e. the mean |confidence − accuracy| over examples by bin, and the
        bins that hold examples: low, high, n, mean confidence, accuracy.
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    which = np.clip(np.digitize(confidence, edges, right=True) - 1, 0, N_BINS - 1)
    bins, error = [], 0.0
    for b in np.unique(which):
        inside = which == b
        row = {"low": float(edges[b]), "high": float(edges[b + 1]), "n": int(inside.sum())}
        row |= {"confidence": float(confidence[inside].mean()), "accuracy": float(right[inside].mean())}
        error += row["n"] / len(truth) * abs(row["confidence"] - row["accuracy"])
        bins.append(row)
    return error, bins


def coverage_curve(truth: np.ndarray, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """Return how often the answers are right of which the model is most sure, by the share of texts answered.

    Returns:
        For each share in steps of 5% the `min_probability` at which at least that share is answered, how many texts
        that are, as `n` and as `coverage`, and their accuracy with ci95 (Wilson). Equal probabilities are answered
        together, so that some steps are left out.
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    ordered, points = np.sort(confidence)[::-1], dict[int, dict[str, Any]]()
    for step in range(1, N_COVERAGES + 1):
        least = ordered[math.ceil(step * len(truth) / N_COVERAGES) - 1]
        answered = confidence >= least
        n, n_right = int(answered.sum()), int(right[answered].sum())
        point = {"coverage": n / len(truth), "n": n, "min_probability": float(least)}
        points[n] = point | {"accuracy": n_right / n, "ci95": wilson_interval(n_right, n)}
    return list(points.values())


def fit_temperature(truth: np.ndarray, probabilities: Float[np.ndarray, "N C"]) -> float | None:
    """Return the temperature at which the probabilities have the least log loss (Guo et al. 2017, section 4.2).

    None where they are not numbers, or where every answer is right: the loss then falls with the temperature to the
    end. `truth` are class numbers.
    """
    from scipy.optimize import minimize_scalar

    if not np.isfinite(probabilities).all() or (probabilities.argmax(axis=1) == truth).all():
        return None
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        p = at_temperature(probabilities, math.exp(log_temperature))[rows, truth]
        return float(-np.log(np.maximum(p, np.finfo(np.float64).tiny)).mean())

    bounds = math.log(COLDEST), math.log(HOTTEST)
    found = minimize_scalar(loss, bounds=bounds, method="bounded")
    return min(HOTTEST, max(COLDEST, math.exp(found.x)))  # pyright: ignore[reportAttributeAccessIssue]


def calibrated_scores(
    truth: np.ndarray, probabilities: Float[np.ndarray, "N C"], temperature: float | None
) -> dict[str, Any]:
    """Return the temperature, and log loss and calibration error at it; nothing where there is none."""
    if temperature is None:
        return {}
    calibrated = at_temperature(probabilities, temperature)
    of_truth = calibrated[np.arange(len(truth)), truth]
    return {
        "temperature": temperature,
        "ece_calibrated": calibration(truth, calibrated)[0],
        "log_loss_calibrated": float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean()),
    }


def _per_class(truth: np.ndarray, predicted: np.ndarray, names: list[str]) -> tuple[list[dict[str, Any]], float]:
    """Return a row for each class, and F1 averaged over the classes that occur or are predicted."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(truth, predicted, labels=np.arange(len(names)), zero_division=0)  # pyright: ignore[reportArgumentType]
    keys = ("label", "precision", "recall", "f1", "support")
    values = (np.asarray(column).tolist() for column in columns)
    rows: list[dict[str, Any]] = [dict(zip(keys, row, strict=True)) for row in zip(names, *values, strict=True)]
    # A class nobody mentions has no F1; calling it 0 would punish the model.
    return rows, float(np.mean([rows[c]["f1"] for c in np.union1d(truth, predicted)]))


def _checked(
    labels: Sequence[int] | np.ndarray, probabilities: np.ndarray, names: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as int64 (N,) and probabilities as float64 (N, C), or say what does not fit."""
    truth, probabilities = np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64)
    if len(truth) == 0:
        raise DataError("There are no examples to score.", hint="Check that the test file has rows.")
    if probabilities.shape != (len(truth), len(names)):
        expected = f"shape ({len(truth)}, {len(names)}) for {len(truth)} labels and {len(names)} classes"
        raise DataError(f"Expected probabilities of {expected}, got {probabilities.shape}.")
    if truth.min() < 0 or truth.max() >= len(names):
        raise DataError(f"Labels must lie in 0…{len(names) - 1}, got {truth.min()}…{truth.max()}.")
    if not np.isfinite(probabilities).all():
        hint = "The model has diverged; `glassformer doctor RUN` says what to change."
        raise DataError("The classifier's probabilities contain NaN or infinity.", hint)
    return truth, probabilities


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
    pairs: bool = False,
) -> dict[str, dict[str, Any]]:
    """Fit and score the baselines of a classifier, on what the Transformer was trained and is scored on.

    Labels are class indices; those of the test texts are used only to score. `model_probabilities` are the
    Transformer's. With `pairs` each text is a pair.

    Returns:
        `majority` and `tfidf_logistic`, each with accuracy, ci95 (Wilson), macro_f1 and settings in words.
        The second is absent if it cannot be fitted: only one class, or no words at all. With `model_probabilities`,
        `hybrid` is the mean of its probabilities and the Transformer's.
    """
    y_train, y_test = np.asarray(train_labels), np.asarray(test_labels)
    baselines = {"majority": _majority(y_train, y_test)}
    n_classes = (
        1 + int(max(y_train.max(), y_test.max())) if model_probabilities is None else model_probabilities.shape[1]
    )
    if bag_of_words := _tfidf_logistic(train_texts, y_train, test_texts, n_classes, pairs):
        probabilities, facts = bag_of_words
        baselines["tfidf_logistic"] = _scored(probabilities.argmax(axis=1), y_test) | facts
        if model_probabilities is not None:
            mean = (probabilities + model_probabilities) / 2
            settings = "the mean of the model's probabilities and the logistic regression's"
            baselines["hybrid"] = _scored(mean.argmax(axis=1), y_test) | {"settings": settings}
    return baselines


def _majority(y_train: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    """Guess the most frequent training label, the smallest number among equals."""
    label = int(np.bincount(y_train).argmax())
    facts = {"label": label, "settings": "always the most frequent label of the training texts"}
    return _scored(np.full_like(y_test, label), y_test) | facts


def bag_of_words_vectorizer(texts: Sequence[str]) -> TfidfVectorizer:
    """Return an unfitted vectorizer that suits these texts: TF-IDF of words and word bigrams with sublinear counts.

    In scripts without spaces a "word" would be a clause that never recurs; there it counts character 1- to 3-grams.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    n = len(texts)
    units: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)}
    if not mostly_unspaced(texts):  # words of one letter too, so that no text with words is empty
        units = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
    return TfidfVectorizer(
        **units,
        min_df=5 if n >= 10_000 else 2 if n >= 1_000 else 1,
        sublinear_tf=True,  # 1 + log(count): the tenth "great" of a review says less than the first
        dtype=np.float32,  # pyright: ignore[reportArgumentType]  (half the memory)
    )


def _tfidf_logistic(
    train_texts: Sequence[str], y_train: np.ndarray, test_texts: Sequence[str], n_classes: int, pairs: bool
) -> tuple[Float[np.ndarray, "N C"], dict[str, Any]] | None:
    """Fit logistic regression on TF-IDF of words and word bigrams; return probabilities and settings.

    None if there is nothing to fit.
    """
    rng = np.random.default_rng(0)
    if len(train_texts) > MAX_TRAIN:
        kept = np.sort(rng.choice(len(train_texts), MAX_TRAIN, replace=False))
        train_texts = list(map(train_texts.__getitem__, kept))
        y_train = y_train[kept]
    if len(np.unique(y_train)) < 2:
        return None
    if (features := tfidf_features(train_texts, test_texts, pairs)) is None:
        return None
    x_train, x_test, units = features
    model, penalty = _fit_logistic(x_train, y_train, rng)
    probabilities = np.zeros((len(test_texts), n_classes))
    probabilities[:, model.classes_] = model.predict_proba(x_test)
    n = len(train_texts)
    return probabilities, {
        "n_train": n,
        "n_features": int(x_train.shape[1]),
        "settings": f"TF-IDF of {units}; "
        f"logistic regression, L2, C = {penalty:g} chosen on a tenth of the {n:,} training texts",
    }


def tfidf_features(
    train_texts: Sequence[str], test_texts: Sequence[str], pairs: bool = False
) -> tuple[Any, Any, str] | None:
    """Return the TF-IDF of training and test texts as sparse matrices, and of what; None for texts without a word.

    In scripts without spaces a "word" would be a clause that never recurs, and the features too weak; there they are
    character 1- to 3-grams. With `pairs` those of each of the two texts, and what both share.
    """
    if pairs:
        return _pair_features(train_texts, test_texts)
    vectorizer = bag_of_words_vectorizer(train_texts)
    min_df, counted = vectorizer.min_df, CHARACTERS if vectorizer.analyzer == "char" else "words and word pairs"
    try:
        x_train = vectorizer.fit_transform(train_texts)
    except ValueError:  # "empty vocabulary": texts without a single word
        return None
    units = f"{counted} seen in at least {min_df} text{'s' * (min_df > 1)}, sublinear counts"
    return x_train, vectorizer.transform(test_texts), units


def _pair_features(train_texts: Sequence[str], test_texts: Sequence[str]) -> tuple[Any, Any, str] | None:
    """Return, as `tfidf_features` does, the TF-IDF of the first and of the second texts of pairs, and what they share.

    That is the geometric mean of the two TF-IDF of each word, which is 0 unless both texts have it, and their cosine.
    """
    from scipy.sparse import csr_matrix, hstack

    singles = split_pairs(train_texts)
    if (features := tfidf_features(singles, split_pairs(test_texts))) is None:
        return None

    def of_pairs(x: Any) -> Any:
        first, second = x[::2], x[1::2]
        both = first.multiply(second)
        return hstack([first, second, both.sqrt(), csr_matrix(both.sum(axis=1))], format="csr")

    *sided, units = features
    train, test = map(of_pairs, sided)
    return train, test, f"the first, of the second and of what both share: {units}, and the cosine of the two"


def _fit_logistic(x: Any, y: np.ndarray, rng: np.random.Generator) -> tuple[Any, float]:
    """Choose the penalty on a held-out tenth of the training texts, then fit on all of them."""
    from sklearn.linear_model import LogisticRegression

    order = rng.permutation(len(y))
    held, rest = order[: len(y) // 10], order[len(y) // 10 :]
    penalty = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": a baseline need not be exact to the last digit
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

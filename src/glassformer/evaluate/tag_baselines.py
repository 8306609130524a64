"""What a model that tags words has to beat: the most frequent tag of each word, and a linear model of a window."""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from glassformer.evaluate.tagging import Sentences, all_counts, score, tag_accuracy

WINDOW = 2
"""Neighbours of a word on each side that the linear model sees."""
N_FEATURES = 1 << 18
"""Columns that the names of features are hashed to."""
ALPHAS = (1e-8, 1e-7, 1e-6, 1e-5)
"""Strengths of the penalty that are tried on a held-out tenth."""
PASSES, TRIED = 30, 10
"""Passes of stochastic gradient descent over the training words, and those by which the penalty is chosen."""
_REPEATED = re.compile(r"(.)\1+")


def fit_baselines(
    train: Sentences, train_tags: Sentences, test: Sentences, test_tags: Sentences, plain: bool
) -> dict[str, dict[str, Any]]:
    """Fit and score both baselines, on the sentences that the model was trained and is scored on.

    Returns:
        `frequent` and `window`, each with its scores and its settings in words. The second is absent where all words of
        training have one tag.
    """
    found = _frequent(train, train_tags, test)
    settings = "each word's most frequent tag in training; the most frequent of all for a word that is not there"
    baselines = {"frequent": _scored(test_tags, found, plain) | {"settings": settings}}
    if len({tag for tags in train_tags for tag in tags}) > 1:
        found, alpha = _window(train, train_tags, test)
        settings = (
            f"logistic regression (stochastic gradient descent, {PASSES} passes, mean of its steps) on each word, its "
            f"lower case, first and last letters and shape, and those of {WINDOW} neighbours on each side, hashed to "
            f"{N_FEATURES:,} columns; L2 {alpha:g}, chosen on a tenth of the training sentences"
        )
        baselines["window"] = _scored(test_tags, found, plain) | {"settings": settings}
    return baselines


def _scored(truth: Sentences, found: Sentences, plain: bool) -> dict[str, Any]:
    left_out = ("headline", "per_label", "confusion", "label_names")
    return {name: value for name, value in score(truth, found, plain).items() if name not in left_out}


def _frequent(train: Sentences, tags: Sentences, test: Sentences) -> list[list[str]]:
    of_word, of_all = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for words, its in zip(train, tags, strict=True):
        of_all.update(its)
        for word, tag in zip(words, its, strict=True):
            of_word[word][tag] += 1
    best = {word: _first(counts) for word, counts in of_word.items()}
    default = _first(of_all)
    return [[best.get(word, default) for word in words] for words in test]


def _first(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


# --- a linear model of a window ----------------------------------------------------------------------------------


def _window(train: Sentences, tags: Sentences, test: Sentences) -> tuple[list[list[str]], float]:
    """Return the tags of the test sentences, and the penalty that was chosen."""
    order = np.random.default_rng(0).permutation(len(train))
    held, rest = order[: max(1, len(order) // 10)], order[max(1, len(order) // 10) :]
    rest = rest if len({tag for i in rest for tag in tags[i]}) > 1 else order
    features = [window_features(words) for words in (_take(train, rest), _take(train, held))]
    y, truth = _flat(_take(tags, rest)), _take(tags, held)
    tried: list[tuple[float, float]] = []
    for alpha in ALPHAS:
        found = _in_sentences(fit_window(features[0], y, alpha, TRIED).predict(features[1]), truth)
        tried.append((tag_accuracy(all_counts(truth, found).sum(axis=0)), alpha))
    alpha = max(tried, key=lambda pair: (pair[0], pair[1]))[1]
    predicted = (
        fit_window(window_features(train), _flat(tags), alpha, PASSES).predict(window_features(test))
        if _flat(test)
        else []
    )
    return _in_sentences(predicted, test), alpha


def fit_window(features: Any, tags: Sequence[str] | np.ndarray, alpha: float, passes: int) -> Any:
    """Return a logistic regression of the tags of words."""
    from sklearn.linear_model import SGDClassifier

    settings: dict[str, Any] = {"max_iter": passes, "tol": None, "average": True, "random_state": 0}
    model = SGDClassifier(loss="log_loss", alpha=alpha, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(features, tags)


def window_features(sentences: Sentences) -> Any:
    """Return the features of all words of sentences as a sparse matrix (words, `N_FEATURES`)."""
    from sklearn.feature_extraction import FeatureHasher

    names = (
        [f"{i - at}{name}" for i in range(at - WINDOW, at + WINDOW + 1) for name in _at(described, i)]
        for described in map(_described, sentences)
        for at in range(len(described))
    )
    return FeatureHasher(N_FEATURES, input_type="string", alternate_sign=False).transform(names)


def _described(words: Sequence[str]) -> list[list[str]]:
    return [list(_of_word(word)) for word in words]


def _at(described: list[list[str]], i: int) -> list[str]:
    return described[i] if 0 <= i < len(described) else ["border"]


def _of_word(word: str) -> Iterator[str]:
    """Yield the names of the features of a word: itself, in lower case, its ends, its shape."""
    yield f"w {word}"
    yield f"l {word.lower()}"
    yield f"p {word[:3]}"
    yield from (f"s {word[-n:]}" for n in (2, 3))
    shape = "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    yield "h " + _REPEATED.sub(r"\1", shape)


def _take(rows: Sentences, index: np.ndarray) -> list[Sequence[str]]:
    return [rows[int(i)] for i in index]


def _flat(rows: Sentences) -> list[str]:
    return [value for row in rows for value in row]


def _in_sentences(values: Sequence[Any], like: Sentences) -> list[list[str]]:
    rest = iter(values)
    return [[str(next(rest)) for _ in row] for row in like]

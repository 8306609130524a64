"""What a trained encoder has to beat, fitted to the texts that it was trained on: a constant, and a linear model.

Linear models read TF-IDF of words and word pairs (logistic and ridge regression), taggers a window of words. Their
penalty is chosen on a held-out tenth of the training texts; the answers of the test texts are used only to score.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from glassformer.evaluate.scores import (
    Labels,
    Sentences,
    answered_scores,
    best_threshold,
    label_counts,
    macro_f1,
    number_scores,
    ranking_precision,
    tag_scores,
)
from glassformer.evaluate.scoring import f1
from glassformer.evaluate.significance import wilson_interval
from glassformer.text.ngrams import mostly_unspaced
from glassformer.text.pairs import split_pairs

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

Baselines = dict[str, dict[str, Any]]
"""Of each baseline its scores and, as `settings`, what it is in words."""
Penalty = TypeVar("Penalty")

MAX_TRAIN = 100_000
"""Most training texts the bag of words is fitted on; counting word pairs takes memory in proportion."""
PENALTIES = (1.0, 4.0, 16.0, 64.0)
"""Inverse strengths of the L2 penalty of a logistic regression."""
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Strengths of the L2 penalty of a ridge regression."""
WINDOW_ALPHAS = (1e-8, 1e-7, 1e-6, 1e-5)
"""Strengths of the L2 penalty of a linear model of a window."""
FEWEST_HELD = {"classes": 20, "number": 5}
"""Texts of the held-out tenth from which a penalty is chosen by them."""
MOST_CHOSEN_BY = 10
"""Labels by which the penalty of several labels is chosen: those that most texts have."""
WINDOW = 2
"""Neighbours of a word on each side that the linear model of a window sees."""
N_FEATURES = 1 << 18
"""Columns that the names of its features are hashed to."""
PASSES, TRIED = 30, 10
"""Passes of its stochastic gradient descent over the training words, and those by which the penalty is chosen."""
CHARACTERS = "one, two and three characters (the texts are in a script without spaces)"
_REPEATED = re.compile(r"(.)\1+")


# --- features of texts -----------------------------------------------------------------------------------------


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


def tfidf_features(
    train_texts: Sequence[str], test_texts: Sequence[str], pairs: bool = False
) -> tuple[Any, Any, str] | None:
    """Return the TF-IDF of training and test texts as sparse matrices, and of what; None for texts without a word.

    With `pairs` that of each of the two texts, the geometric mean of both of each word, which is 0 unless both texts
    have it, and their cosine.
    """
    if pairs:
        train_texts, test_texts = split_pairs(train_texts), split_pairs(test_texts)
    vectorizer = bag_of_words_vectorizer(train_texts)
    min_df, counted = vectorizer.min_df, CHARACTERS if vectorizer.analyzer == "char" else "words and word pairs"
    try:
        features = vectorizer.fit_transform(train_texts), vectorizer.transform(test_texts)
    except ValueError:  # "empty vocabulary": texts without a single word
        return None
    units = f"{counted} seen in at least {min_df} text{'s' * (min_df > 1)}, sublinear counts"
    if not pairs:
        return *features, units
    train, test = map(_of_pairs, features)
    return train, test, f"the first, of the second and of what both share: {units}, and the cosine of the two"


def _of_pairs(x: Any) -> Any:
    from scipy.sparse import csr_matrix, hstack

    first, second = x[::2], x[1::2]
    both = first.multiply(second)
    return hstack([first, second, both.sqrt(), csr_matrix(both.sum(axis=1))], format="csr")


def _limited(texts: Sequence[str], truth: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return at most `MAX_TRAIN` of the training texts, drawn by chance, with what is true of them."""
    if len(texts) <= MAX_TRAIN:
        return [*texts], truth
    kept = np.sort(np.random.default_rng(0).choice(len(texts), MAX_TRAIN, replace=False))
    some = [str(texts[i]) for i in kept.tolist()]
    return some, truth[kept]


def _held_out(n: int, fewest: int = 0) -> tuple[Int[np.ndarray, " h"], Int[np.ndarray, " r"]]:
    """Return a tenth of n examples to choose by, and the rest to fit."""
    order, n_held = np.random.default_rng(0).permutation(n), max(fewest, n // 10)
    return order[:n_held], order[n_held:]


def _best(penalties: Sequence[Penalty], score: Callable[[Penalty], float]) -> Penalty:
    """Return the penalty with the highest score, the first of equal ones; a model may stop before it converges."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return max(penalties, key=score)


def _fit_logistic(x: Any, y: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": a baseline need not be exact to the last digit
        return LogisticRegression(C=penalty, max_iter=500).fit(x, y)


# --- classes ---------------------------------------------------------------------------------------------------


def class_baselines(
    train_texts: Sequence[str],
    train_labels: Sequence[int] | np.ndarray,
    test_texts: Sequence[str],
    test_labels: Sequence[int] | np.ndarray,
    model_probabilities: Float[np.ndarray, "N C"] | None = None,
    pairs: bool = False,
) -> Baselines:
    """Fit and score the baselines of a classifier; labels are class numbers.

    Returns:
        `majority` and `tfidf_logistic`, each with accuracy, ci95 (Wilson) and macro_f1. The second is absent if it
        cannot be fitted: only one class, or no words at all. With `model_probabilities` of the Transformer, `hybrid` is
        the mean of both probabilities.
    """
    y, y_test = np.asarray(train_labels), np.asarray(test_labels)
    n_classes = 1 + int(max(y.max(), y_test.max())) if model_probabilities is None else model_probabilities.shape[1]
    frequent = int(np.bincount(y).argmax())  # the smallest number among equals
    settings = "always the most frequent label of the training texts"
    found = {
        "majority": _class_scores(np.full_like(y_test, frequent), y_test) | {"label": frequent, "settings": settings}
    }
    texts, y = _limited(train_texts, y)
    if len(np.unique(y)) < 2 or (features := tfidf_features(texts, test_texts, pairs)) is None:
        return found
    x, x_test, units = features
    held, rest = _held_out(len(y))
    penalty = 1.0
    if len(held) >= FEWEST_HELD["classes"] and len(np.unique(y[rest])) > 1:
        penalty = _best(PENALTIES, lambda c: _fit_logistic(x[rest], y[rest], c).score(x[held], y[held]))
    fitted = _fit_logistic(x, y, penalty)
    probabilities = np.zeros((len(test_texts), n_classes))
    probabilities[:, fitted.classes_] = fitted.predict_proba(x_test)
    settings = (
        f"TF-IDF of {units}; logistic regression, L2, C = {penalty:g} chosen on a tenth of the {len(y):,} training "
        "texts"
    )
    facts = {"n_train": len(y), "n_features": int(x.shape[1]), "settings": settings}
    found["tfidf_logistic"] = _class_scores(probabilities.argmax(axis=1), y_test) | facts
    if model_probabilities is not None:
        settings = "the mean of the model's probabilities and the logistic regression's"
        both = (probabilities + model_probabilities).argmax(axis=1)
        found["hybrid"] = _class_scores(both, y_test) | {"settings": settings}
    return found


def _class_scores(predicted: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    n_right, size = int((predicted == truth).sum()), 1 + int(max(predicted.max(), truth.max()))
    counts = (np.bincount(each, minlength=size) for each in (truth[predicted == truth], predicted, truth))
    interval = wilson_interval(n_right, len(truth))
    return {"accuracy": n_right / len(truth), "ci95": interval, "macro_f1": macro_f1(*counts)}


# --- several labels --------------------------------------------------------------------------------------------


def label_baselines(
    train_texts: Sequence[str],
    train: Labels,
    test_texts: Sequence[str],
    test: Bool[np.ndarray, "T L"],
    pairs: bool = False,
) -> Baselines:
    """Fit and score what a classifier of several labels has to beat.

    Returns:
        `frequent`, the labels that most training texts have, and `tfidf_logistic`, a logistic regression for each
        label. The second is absent where there is no word.
    """
    shares = train.mean(axis=0)
    limit = best_threshold(train.ravel(), np.broadcast_to(shares, train.shape).ravel())
    settings = f"always the labels of {limit:.1%} of the training texts or more: {int((shares >= limit).sum())}"
    constant = np.broadcast_to(shares >= limit, test.shape)
    found = {"frequent": answered_scores(test, constant) | {"settings": settings}}
    if (features := tfidf_features(train_texts, test_texts, pairs)) is None:
        return found
    x, x_test, units = features
    held, rest = _held_out(len(train), 1)
    frequent = np.sort((-train.sum(axis=0)).argsort(kind="stable")[:MOST_CHOSEN_BY])

    def score(penalty: float) -> float:
        p, truth = _one_against_rest(x[rest], train[rest][:, frequent], x[held], penalty), train[held][:, frequent]
        return f1(label_counts(truth, p >= best_threshold(truth.ravel(), p.ravel())).sum(axis=0))

    penalty = _best(PENALTIES, score)
    threshold = best_threshold(train[held].ravel(), _one_against_rest(x[rest], train[rest], x[held], penalty).ravel())
    p = _one_against_rest(x, train, x_test, penalty)
    settings = (
        f"TF-IDF of {units}; a logistic regression for each label, L2, C = {penalty:g} and threshold {threshold:.3f} "
        f"chosen on a tenth of the {len(train):,} training texts"
    )
    scores = answered_scores(test, p >= threshold) | {"ranking_precision": ranking_precision(test, p)}
    return found | {"tfidf_logistic": scores | {"settings": settings}}


def _one_against_rest(x: Any, truth: Labels, x_test: Any, penalty: float) -> Float[np.ndarray, "T L"]:
    """Return each label's probability by a logistic regression of its own; its share where all texts agree."""
    columns: list[np.ndarray] = []
    for labels in truth.T:
        if labels.all() or not labels.any():
            columns.append(np.full(x_test.shape[0], float(labels.mean())))
        else:
            columns.append(_fit_logistic(x, labels, penalty).predict_proba(x_test)[:, 1])
    return np.stack(columns, axis=1)


# --- a number --------------------------------------------------------------------------------------------------


def number_baselines(
    train_texts: Sequence[str],
    train: Float[np.ndarray, " N"],
    test_texts: Sequence[str],
    test: Float[np.ndarray, " T"],
    scale: tuple[float, float],
    pairs: bool = False,
) -> Baselines:
    """Fit and score what a regressor has to beat; `scale` are mean and standard deviation of the training numbers.

    Returns:
        `mean`, the mean training number for each text, and `tfidf_ridge`, a ridge regression. The second is absent
        where there is no word.
    """
    from sklearn.linear_model import Ridge

    mean, sd = scale
    settings = f"always {mean:.6g}, the mean of the training numbers"
    found = {"mean": number_scores(test, np.full(len(test), mean)) | {"settings": settings}}
    texts, train = _limited(train_texts, train)
    if (features := tfidf_features(texts, test_texts, pairs)) is None:
        return found
    x, x_test, units = features
    y, (held, rest) = (train - mean) / sd, _held_out(len(train))
    alpha = 1.0
    if len(held) >= FEWEST_HELD["number"]:  # by the least absolute error, by which models are chosen
        alpha = _best(ALPHAS, lambda a: -np.abs(y[held] - Ridge(alpha=a).fit(x[rest], y[rest]).predict(x[held])).mean())
    # TF-IDF is in single precision, in which a large mean has no room for the rest.
    predicted = mean + sd * Ridge(alpha=alpha).fit(x, y).predict(x_test).astype(np.float64)
    settings = (
        f"TF-IDF of {units}; ridge regression, alpha = {alpha:g} chosen on a tenth of the {len(y):,} training texts"
    )
    return found | {"tfidf_ridge": number_scores(test, predicted) | {"settings": settings}}


# --- tags ------------------------------------------------------------------------------------------------------


def tag_baselines(
    train: Sentences, train_tags: Sentences, test: Sentences, test_tags: Sentences, plain: bool
) -> Baselines:
    """Fit and score what a tagger of words has to beat.

    Returns:
        `frequent`, the most frequent tag of each word, and `window`, a linear model of a window. The second is absent
        where all words of training have one tag.
    """
    of_word, of_all = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for words, tags in zip(train, train_tags, strict=True):
        of_all.update(tags)
        for word, tag in zip(words, tags, strict=True):
            of_word[word][tag] += 1
    best, default = {word: _most_frequent(counts) for word, counts in of_word.items()}, _most_frequent(of_all)
    settings = "each word's most frequent tag in training; the most frequent of all for a word that is not there"
    answers = [[best.get(word, default) for word in words] for words in test]
    found = {"frequent": _tag_scores(test_tags, answers, plain) | {"settings": settings}}
    if len(of_all) < 2:
        return found
    held, rest = _held_out(len(train), 1)
    rest = rest if len({tag for i in rest.tolist() for tag in train_tags[i]}) > 1 else np.arange(len(train))
    x, x_held = (window_features([train[i] for i in index.tolist()]) for index in (rest, held))
    y, y_held = (_flat([train_tags[i] for i in index.tolist()]) for index in (rest, held))
    alpha = _best(WINDOW_ALPHAS[::-1], lambda a: float(np.mean(fit_window(x, y, a, TRIED).predict(x_held) == y_held)))
    answered: Iterator[str] = iter(())
    if len(_flat(test)):
        fitted = fit_window(window_features(train), _flat(train_tags), alpha, PASSES)
        answered = map(str, fitted.predict(window_features(test)))
    settings = (
        f"logistic regression (stochastic gradient descent, {PASSES} passes, mean of its steps) on each word, its "
        f"lower case, first and last letters and shape, and those of {WINDOW} neighbours on each side, hashed to "
        f"{N_FEATURES:,} columns; L2 {alpha:g}, chosen on a tenth of the training sentences"
    )
    answers = [[next(answered) for _ in words] for words in test]
    return found | {"window": _tag_scores(test_tags, answers, plain) | {"settings": settings}}


def _tag_scores(truth: Sentences, found: Sentences, plain: bool) -> dict[str, Any]:
    left_out = ("headline", "per_label", "confusion", "label_names")
    return {name: value for name, value in tag_scores(truth, found, plain).items() if name not in left_out}


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


def _flat(rows: Sentences) -> np.ndarray:
    return np.array([value for row in rows for value in row])


def fit_window(features: Any, tags: np.ndarray, alpha: float, passes: int) -> Any:
    """Return a logistic regression of the tags of words."""
    from sklearn.linear_model import SGDClassifier

    settings: dict[str, Any] = {"max_iter": passes, "tol": None, "average": True, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SGDClassifier(loss="log_loss", alpha=alpha, **settings).fit(features, tags)


def window_features(sentences: Sentences) -> Any:
    """Return the features of all words of sentences as a sparse matrix (words, `N_FEATURES`)."""
    from sklearn.feature_extraction import FeatureHasher

    def named(words: Sequence[str]) -> Iterator[list[str]]:
        described = [list(_of_word(word)) for word in words]
        for at in range(len(words)):
            near = ((i - at, described[i] if 0 <= i < len(words) else ["border"]) for i in _around(at))
            yield [f"{distance}{name}" for distance, names in near for name in names]

    names = (one for words in sentences for one in named(words))
    return FeatureHasher(N_FEATURES, input_type="string", alternate_sign=False).transform(names)


def _around(at: int) -> range:
    return range(at - WINDOW, at + WINDOW + 1)


def _of_word(word: str) -> Iterator[str]:
    """Yield the names of the features of a word: itself, in lower case, its ends, its shape."""
    yield f"w {word}"
    yield f"l {word.lower()}"
    yield f"p {word[:3]}"
    yield from (f"s {word[-n:]}" for n in (2, 3))
    shape = "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    yield "h " + _REPEATED.sub(r"\1", shape)

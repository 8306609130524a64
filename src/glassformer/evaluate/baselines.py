"""What a trained encoder has to beat, fitted to the texts that it was trained on: a constant, and a linear model.

Linear models read TF-IDF of words and word pairs (logistic and ridge regression), taggers a window of words. Their
penalty is chosen on a held-out tenth of the training texts; the answers of the test texts are used only to score.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from glassformer.data.datasets.labels import mean_and_sd
from glassformer.evaluate import scores
from glassformer.evaluate.scores import Labels, Sentences, best_threshold
from glassformer.text.ngrams import mostly_unspaced
from glassformer.text.pairs import split_pairs

Baselines = dict[str, dict[str, Any]]
"""Of each baseline its scores and, as `settings`, what it is in words."""
Answer = Callable[[Any, np.ndarray, Any], tuple[np.ndarray, str]]
"""Features and truth of examples, and features of others → the answers to these, and the penalty in words."""


class Known(NamedTuple):
    """The texts of a split with what is true of them, and whether each is a pair."""

    texts: Sequence[str]
    truth: Any
    pairs: bool = False


MAX_TRAIN = 100_000
"""Most training texts the bag of words is fitted on; counting word pairs takes memory in proportion."""
PENALTIES, LABEL_PENALTY = (1.0, 4.0, 16.0, 64.0), 16.0
"""Inverse strengths of the L2 penalty of a logistic regression, and that of one for each of several labels."""
ALPHAS = (1.0, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0)
"""Strengths of the L2 penalty of a ridge regression."""
WINDOW_ALPHAS = (1e-5, 1e-6, 1e-7, 1e-8)
"""Strengths of the L2 penalty of a linear model of a window."""
FEWEST = 20
"""Examples of the held-out tenth from which a penalty is chosen by them; below, it is the first."""
WINDOW = 2
"""Neighbours of a word on each side that the linear model of a window sees."""
N_FEATURES = 1 << 18
"""Columns that the names of its features are hashed to."""
PASSES = 15
"""Passes of its stochastic gradient descent over the training words."""


# --- linear models of texts ------------------------------------------------------------------------------------


def bag_of_words_vectorizer(texts: Sequence[str]) -> Any:
    """Return an unfitted vectorizer that suits these texts: TF-IDF of words and word bigrams with sublinear counts.

    In scripts without spaces a "word" would be a clause that never recurs; there it counts character 1- to 3-grams.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    least = 5 if len(texts) >= 10_000 else 2 if len(texts) >= 1_000 else 1
    units: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3), "min_df": least}
    if not mostly_unspaced(texts):  # words of one letter too, so that no text with words is empty
        units = {"ngram_range": (1, 2), "min_df": least, "token_pattern": r"(?u)\b\w+\b"}
    # Counts are 1 + log(count): the tenth "great" of a review says less than the first. float32 is half the memory.
    return TfidfVectorizer(**units, sublinear_tf=True, dtype=np.float32)  # pyright: ignore[reportArgumentType]


def tfidf_features(train: Known, test: Known) -> tuple[Any, Any, str] | None:
    """Return the TF-IDF of training and test texts as sparse matrices, and of what; None for texts without a word.

    Of pairs that of each of the two texts, and what both share: the geometric mean of each word, and the cosine.
    """
    texts, test_texts = (split_pairs(part.texts) if part.pairs else part.texts for part in (train, test))
    vectorizer = bag_of_words_vectorizer(texts)
    try:
        x, x_test = vectorizer.fit_transform(texts), vectorizer.transform(test_texts)
    except ValueError:  # "empty vocabulary"
        return None
    characters = "one, two and three characters (the texts are in a script without spaces)"
    units = characters if vectorizer.analyzer == "char" else "words and word pairs"
    if not train.pairs:
        return x, x_test, f"TF-IDF of {units}"
    units = f"TF-IDF of the first, of the second and of what both share: {units}, and the cosine of the two"
    return _of_pairs(x), _of_pairs(x_test), units


def _of_pairs(x: Any) -> Any:
    from scipy.sparse import csr_matrix, hstack

    first, second = x[::2], x[1::2]
    both = first.multiply(second)
    return hstack([first, second, both.sqrt(), csr_matrix(both.sum(axis=1))], format="csr")


def _limited(train: Known) -> Known:
    """Return at most `MAX_TRAIN` of the training texts, drawn by chance."""
    if len(train.texts) <= MAX_TRAIN:
        return train
    kept = np.sort(np.random.default_rng(0).choice(len(train.texts), MAX_TRAIN, replace=False))
    return Known([str(train.texts[i]) for i in kept.tolist()], train.truth[kept], train.pairs)


def _held_out(n: int) -> Bool[np.ndarray, " n"]:
    """Return which of n examples are held out to choose by: a tenth, one at least."""
    held = np.zeros(n, bool)
    held[np.random.default_rng(0).permutation(n)[: max(1, n // 10)]] = True
    return held


def _answered(
    model: Any, name: str, penalties: Sequence[float], held: np.ndarray, x: Any, y: np.ndarray, x_test: Any
) -> tuple[np.ndarray, str]:
    """Return the answers to others at the penalty of the least error on what is held out, and that penalty in words."""
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    if held.sum() < FEWEST or len(np.unique(y[~held])) < 2:
        return _fitted(model.set_params(**{name: penalties[0]}), x, y).predict(x_test), f"{penalties[0]:g}"
    scoring = "neg_mean_absolute_error" if y.dtype.kind == "f" else "accuracy"
    parts = PredefinedSplit(np.where(held, 0, -1))
    found = _fitted(GridSearchCV(model, {name: [*penalties]}, scoring=scoring, cv=parts), x, y)
    return found.predict(x_test), f"{found.best_params_[name]:g}, chosen on a tenth of the {len(y):,} training examples"


def _fitted(model: Any, x: Any, y: np.ndarray) -> Any:
    """Fit a model, which may stop before it converges: a baseline need not be exact to the last digit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x, y)


def _of_texts(train: Known, test: Known, answer: Answer, model: str) -> tuple[np.ndarray, str] | None:
    """Return what a linear model of TF-IDF answers to test texts, and what it is; None for texts without a word."""
    if (features := tfidf_features(train, test)) is None or len(np.unique(train.truth, axis=0)) < 2:
        return None
    x, x_test, units = features
    answers, chosen = answer(x, train.truth, x_test)
    return answers, f"{units}; {model} = {chosen}"


# --- classes, several labels, a number -------------------------------------------------------------------------


def class_baselines(train: Known, test: Known) -> Baselines:
    """Fit and score the baselines of a classifier; what is true are class numbers.

    Returns:
        `majority` and `tfidf_logistic`, each with accuracy, ci95 (Wilson) and macro_f1. The second is absent if it
        cannot be fitted: only one class, or no words at all.
    """
    from sklearn.linear_model import LogisticRegression

    label = np.bincount(train.truth).argmax()  # the smallest number among equals
    constant = np.full_like(test.truth, label), "always the most frequent label of the training texts"
    train = _limited(train)
    answer = partial(_answered, LogisticRegression(max_iter=500), "C", PENALTIES, _held_out(len(train.truth)))
    linear = _of_texts(train, test, answer, "logistic regression, L2, C")
    return _scored(test, scores.right_scores, majority=constant, tfidf_logistic=linear)


def label_baselines(train: Known, test: Known) -> Baselines:
    """Fit and score what a classifier of several labels has to beat.

    Returns:
        `frequent`, the labels that most training texts have, and `tfidf_logistic`, a logistic regression for each
        label, whose common threshold is chosen with the penalty. The second is absent where there is no word.
    """
    shares = train.truth.mean(axis=0)
    limit = best_threshold(train.truth.ravel(), np.broadcast_to(shares, train.truth.shape).ravel())
    settings = f"always the labels of {limit:.1%} of the training texts or more: {int((shares >= limit).sum())}"
    constant = np.broadcast_to(shares >= limit, test.truth.shape), settings
    linear = _of_texts(_limited(train), test, _answered_labels, "a logistic regression for each label, L2, C")
    return _scored(test, scores.answered_scores, frequent=constant, tfidf_logistic=linear)


def _answered_labels(x: Any, truth: Labels, x_test: Any) -> tuple[Bool[np.ndarray, "T L"], str]:
    """Return the labels whose probability reaches a common threshold, the best on what is held out of the training."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    model, held = OneVsRestClassifier(LogisticRegression(C=LABEL_PENALTY, max_iter=500)), _held_out(len(truth))
    p = _fitted(model, x[~held], truth[~held].astype(int)).predict_proba(x[held])
    threshold = best_threshold(truth[held].ravel(), p.ravel())
    return _fitted(model, x, truth.astype(int)).predict_proba(x_test) >= threshold, f"{LABEL_PENALTY:g}"


def number_baselines(train: Known, test: Known) -> Baselines:
    """Fit and score what a regressor has to beat.

    Returns:
        `mean`, the mean training number for each text, and `tfidf_ridge`, a ridge regression. The second is absent
        where there is no word.
    """
    from sklearn.linear_model import Ridge

    mean, sd = mean_and_sd(train.truth)
    constant = np.full(len(test.truth), mean), f"always {mean:.6g}, the mean of the training numbers"
    # TF-IDF is in single precision, in which a large mean has no room for the rest.
    train = _limited(train._replace(truth=(train.truth - mean) / sd))
    answer = partial(_answered, Ridge(), "alpha", ALPHAS, _held_out(len(train.truth)))
    if linear := _of_texts(train, test, answer, "ridge regression, alpha"):
        linear = mean + sd * linear[0].astype(np.float64), linear[1]
    return _scored(test, scores.number_scores, mean=constant, tfidf_ridge=linear)


def _scored(test: Known, score: Callable[..., dict[str, Any]], **answers: tuple[np.ndarray, str] | None) -> Baselines:
    """Return the scores of what baselines answer, and what each is, without those that could not be fitted."""
    return {name: score(test.truth, one[0]) | {"settings": one[1]} for name, one in answers.items() if one}


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
    for word, tag in zip(chain(*train), chain(*train_tags), strict=True):
        of_all[tag] += 1
        of_word[word][tag] += 1
    best, other = {word: _most_frequent(counts) for word, counts in of_word.items()}, _most_frequent(of_all)
    settings = "each word's most frequent tag in training; the most frequent of all for a word that is not there"
    answered = {"frequent": ([best.get(word, other) for word in chain(*test)], settings)}
    if len(of_all) > 1:
        from sklearn.linear_model import SGDClassifier

        how: Any = {"max_iter": PASSES, "tol": None, "average": True, "random_state": 0}
        x, x_test, y = window_features(train), window_features(test), np.array([*chain(*train_tags)])
        held = np.repeat(_held_out(len(train)), [*map(len, train)])
        model = SGDClassifier(loss="log_loss", **how)
        tags, penalty = _answered(model, "alpha", WINDOW_ALPHAS, held, x, y, x_test)
        seen = f"each word, its ends and shape, and those of {WINDOW} neighbours on each side"
        answered["window"] = [*map(str, tags)], f"logistic regression on {seen}; L2 {penalty}"
    found, ends = Baselines(), np.cumsum([0, *map(len, test)])
    for name, (tags, settings) in answered.items():
        scored = scores.tag_scores(test_tags, [tags[a:b] for a, b in pairwise(ends)], plain)
        left_out = "headline", "per_label"
        found[name] = {key: value for key, value in scored.items() if key not in left_out} | {"settings": settings}
    return found


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


def window_features(sentences: Sentences) -> Any:
    """Return the features of all words of sentences as a sparse matrix (words, `N_FEATURES`)."""
    from sklearn.feature_extraction import FeatureHasher

    def named() -> Iterator[list[str]]:
        border = [["border"]] * WINDOW
        for words in sentences:
            described = [*border, *map(_of_word, words), *border]
            for at in range(len(words)):
                yield [f"{i - WINDOW}{name}" for i in range(2 * WINDOW + 1) for name in described[at + i]]

    return FeatureHasher(N_FEATURES, input_type="string", alternate_sign=False).transform(named())


def _of_word(word: str) -> list[str]:
    """Return the names of the features of a word: itself, in lower case, its ends, its shape."""
    shape = "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    ends = f"p {word[:3]}", f"s {word[-2:]}", f"s {word[-3:]}"
    return [f"w {word}", f"l {word.lower()}", *ends, "h " + re.sub(r"(.)\1+", r"\1", shape)]

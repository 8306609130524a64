"""What a trained encoder has to beat, fitted to the texts that it was trained on: a constant, and a linear model.

Linear models read TF-IDF of words and word pairs (logistic and ridge regression), taggers a window of words. Their
penalty is chosen on a held-out tenth of the training texts; the answers of the test texts are used only to score.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from glassformer.evaluate import scores
from glassformer.evaluate.scores import Labels, Sentences, best_threshold
from glassformer.evaluate.scoring import f1
from glassformer.text.ngrams import mostly_unspaced
from glassformer.text.pairs import split_pairs

Baselines = dict[str, dict[str, Any]]
"""Of each baseline its scores and, as `settings`, what it is in words."""


Fit = Callable[[Any, np.ndarray, float, Any], np.ndarray]
"""Features and truth of texts, a penalty, and features of others → the answers to the others."""
Error = Callable[[np.ndarray, np.ndarray], float]
"""Truth and answers → what the best penalty has least of."""
CHOSEN = "chosen on a tenth of the {:,} training texts"


class Known(NamedTuple):
    """The texts of a split with what is true of them, and whether each is a pair."""

    texts: Sequence[str]
    truth: Any
    pairs: bool = False


MAX_TRAIN = 100_000
"""Most training texts the bag of words is fitted on; counting word pairs takes memory in proportion."""
PENALTIES = (1.0, 4.0, 16.0, 64.0)
"""Inverse strengths of the L2 penalty of a logistic regression."""
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Strengths of the L2 penalty of a ridge regression."""
WINDOW_ALPHAS = (1e-8, 1e-7, 1e-6, 1e-5)
"""Strengths of the L2 penalty of a linear model of a window."""
MOST_CHOSEN_BY = 10
"""Labels by which the penalty of several labels is chosen: those that most texts have."""
FEWEST_CLASSES, FEWEST_NUMBERS = 20, 5
"""Texts of the held-out tenth from which a penalty is chosen by them."""
WINDOW = 2
"""Neighbours of a word on each side that the linear model of a window sees."""
N_FEATURES = 1 << 18
"""Columns that the names of its features are hashed to."""
PASSES, TRIED = 30, 10
"""Passes of its stochastic gradient descent over the training words, and those by which the penalty is chosen."""


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


def _held_out(n: int) -> tuple[Int[np.ndarray, " h"], Int[np.ndarray, " r"]]:
    """Return a tenth of n examples to choose by, one at least, and the rest to fit."""
    order, n_held = np.random.default_rng(0).permutation(n), max(1, n // 10)
    return order[:n_held], order[n_held:]


def _chosen(fit: Fit, penalties: Sequence[float], x: Any, y: np.ndarray, fewest: int, error: Error) -> float:
    """Return the penalty with the least error on the texts held out; 1 where they are fewer than `fewest`."""
    held, rest = _held_out(len(y))
    if len(held) < fewest or len(np.unique(y[rest])) < 2:
        return 1.0
    return min(penalties, key=lambda penalty: error(y[held], fit(x[rest], y[rest], penalty, x[held])))


def _fitted(model: Any, x: Any, y: np.ndarray) -> Any:
    """Fit a model, which may stop before it converges: a baseline need not be exact to the last digit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x, y)


def _logistic(x: Any, y: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _fitted(LogisticRegression(C=penalty, max_iter=500), x, y)


# --- classes, several labels, a number -------------------------------------------------------------------------


def class_baselines(train: Known, test: Known) -> Baselines:
    """Fit and score the baselines of a classifier; what is true are class numbers.

    Returns:
        `majority` and `tfidf_logistic`, each with accuracy, ci95 (Wilson) and macro_f1. The second is absent if it
        cannot be fitted: only one class, or no words at all.
    """

    def fit(x: Any, y: np.ndarray, penalty: float, others: Any) -> np.ndarray:
        return _logistic(x, y, penalty).predict(others)

    label = int(np.bincount(train.truth).argmax())  # the smallest number among equals
    constant = {"label": label, "settings": "always the most frequent label of the training texts"}
    found = {"majority": scores.right_scores(test.truth, np.full_like(test.truth, label)) | constant}
    train = _limited(train)
    if len(np.unique(y := train.truth)) < 2 or (features := tfidf_features(train, test)) is None:
        return found
    x, x_test, units = features
    penalty = _chosen(fit, PENALTIES, x, y, FEWEST_CLASSES, lambda truth, answers: float(np.mean(truth != answers)))
    settings = f"{units}; logistic regression, L2, C = {penalty:g} {CHOSEN.format(len(y))}"
    answered = scores.right_scores(test.truth, fit(x, y, penalty, x_test))
    return found | {"tfidf_logistic": answered | {"settings": settings}}


def label_baselines(train: Known, test: Known) -> Baselines:
    """Fit and score what a classifier of several labels has to beat.

    Returns:
        `frequent`, the labels that most training texts have, and `tfidf_logistic`, a logistic regression for each
        label. The second is absent where there is no word.
    """
    shares = train.truth.mean(axis=0)
    limit = best_threshold(train.truth.ravel(), np.broadcast_to(shares, train.truth.shape).ravel())
    settings = f"always the labels of {limit:.1%} of the training texts or more: {int((shares >= limit).sum())}"
    constant = np.broadcast_to(shares >= limit, test.truth.shape)
    found = {"frequent": scores.answered_scores(test.truth, constant) | {"settings": settings}}
    train = _limited(train)
    if (features := tfidf_features(train, test)) is None:
        return found
    (x, x_test, units), y = features, train.truth

    def error(truth: Labels, p: np.ndarray) -> float:
        return -f1(scores.label_counts(truth, p >= best_threshold(truth.ravel(), p.ravel())).sum(axis=0))

    frequent = np.sort((-y.sum(axis=0)).argsort(kind="stable")[:MOST_CHOSEN_BY])
    penalty, (held, rest) = _chosen(_one_against_rest, PENALTIES, x, y[:, frequent], 1, error), _held_out(len(y))
    threshold = best_threshold(y[held].ravel(), _one_against_rest(x[rest], y[rest], penalty, x[held]).ravel())
    settings = f"{units}; a logistic regression for each label, L2, C = {penalty:g} and threshold {threshold:.3f}"
    answered = scores.answered_scores(test.truth, _one_against_rest(x, y, penalty, x_test) >= threshold)
    return found | {"tfidf_logistic": answered | {"settings": f"{settings} {CHOSEN.format(len(y))}"}}


def _one_against_rest(x: Any, truth: Labels, penalty: float, others: Any) -> Float[np.ndarray, "T L"]:
    """Return each label's probability by a logistic regression of its own; its share where all texts agree."""
    p = np.tile(truth.mean(axis=0), (others.shape[0], 1))
    for i, labels in enumerate(truth.T):
        if labels.any() and not labels.all():
            p[:, i] = _logistic(x, labels, penalty).predict_proba(others)[:, 1]
    return p


def number_baselines(train: Known, test: Known, scale: tuple[float, float]) -> Baselines:
    """Fit and score what a regressor has to beat; `scale` are mean and standard deviation of the training numbers.

    Returns:
        `mean`, the mean training number for each text, and `tfidf_ridge`, a ridge regression. The second is absent
        where there is no word.
    """
    from sklearn.linear_model import Ridge

    def fit(x: Any, y: np.ndarray, penalty: float, others: Any) -> np.ndarray:
        # TF-IDF is in single precision, in which a large mean has no room for the rest.
        return _fitted(Ridge(alpha=penalty), x, y).predict(others).astype(np.float64)

    mean, sd = scale
    settings = f"always {mean:.6g}, the mean of the training numbers"
    found = {"mean": scores.number_scores(test.truth, np.full(len(test.truth), mean)) | {"settings": settings}}
    train = _limited(train)
    if (features := tfidf_features(train, test)) is None:
        return found
    (x, x_test, units), y = features, (train.truth - mean) / sd
    # By the least absolute error, by which models are chosen.
    alpha = _chosen(fit, ALPHAS, x, y, FEWEST_NUMBERS, lambda truth, answers: float(np.abs(truth - answers).mean()))
    settings = f"{units}; ridge regression, alpha = {alpha:g} {CHOSEN.format(len(y))}"
    answered = scores.number_scores(test.truth, mean + sd * fit(x, y, alpha, x_test))
    return found | {"tfidf_ridge": answered | {"settings": settings}}


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
    best = {word: _most_frequent(counts) for word, counts in of_word.items()}
    answers = [[best.get(word) or _most_frequent(of_all) for word in words] for words in test]
    settings = "each word's most frequent tag in training; the most frequent of all for a word that is not there"
    found = {"frequent": _tag_scores(test_tags, answers, plain) | {"settings": settings}}
    if len(of_all) < 2:
        return found
    held, rest = _held_out(len(train))
    rest = rest if len({tag for i in rest.tolist() for tag in train_tags[i]}) > 1 else np.arange(len(train))
    x, x_held = (window_features([train[i] for i in index.tolist()]) for index in (rest, held))
    y, y_held = (_flat([train_tags[i] for i in index.tolist()]) for index in (rest, held))
    alpha = max(WINDOW_ALPHAS[::-1], key=lambda a: np.mean(fit_window(x, y, a, TRIED).predict(x_held) == y_held))
    model = fit_window(window_features(train), _flat(train_tags), alpha, PASSES)
    answered = map(str, model.predict(window_features(test)))
    settings = (
        f"logistic regression on each word, its ends and shape, and those of {WINDOW} neighbours on each side; "
        f"L2 {alpha:g}, chosen on a tenth of the training sentences"
    )
    answers = [[next(answered) for _ in words] for words in test]
    return found | {"window": _tag_scores(test_tags, answers, plain) | {"settings": settings}}


def _tag_scores(truth: Sentences, found: Sentences, plain: bool) -> dict[str, Any]:
    left_out = ("headline", "per_label", "confusion", "label_names")
    return {name: value for name, value in scores.tag_scores(truth, found, plain).items() if name not in left_out}


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


def _flat(rows: Sentences) -> np.ndarray:
    return np.array([value for row in rows for value in row])


def fit_window(features: Any, tags: np.ndarray, alpha: float, passes: int) -> Any:
    """Return a logistic regression of the tags of words."""
    from sklearn.linear_model import SGDClassifier

    settings: dict[str, Any] = {"max_iter": passes, "tol": None, "average": True, "random_state": 0}
    return _fitted(SGDClassifier(loss="log_loss", alpha=alpha, **settings), features, tags)


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

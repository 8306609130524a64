"""The yardsticks learn what they should, are the same every time, and never stop an evaluation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.for_each import for_each

from glassformer.evaluate.baselines import Baselines, Known, class_baselines


def fit_baselines(*given: object) -> Baselines:
    """Fit and score the baselines of training texts, their labels, test texts and theirs."""
    train_texts, train_labels, test_texts, test_labels = given
    return class_baselines(Known(train_texts, np.array(train_labels)), Known(test_texts, np.array(test_labels)))  # pyright: ignore


def reviews(n: int, seed: int) -> tuple[list[str], list[int]]:
    """Write reviews whose label hangs on one pair of words among noise."""
    rng = np.random.default_rng(seed)
    filler = ["film", "plot", "the", "actor", "scene", "it", "was", "of"]
    texts, labels = [], []
    for _ in range(n):
        label = int(rng.uniform() < 0.6)
        words = list(rng.choice(filler, size=12))
        words[3:3] = ["not", "good"] if label == 0 else ["very", "good"]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def test_both_baselines_on_learnable_text() -> None:
    train, test = reviews(300, 0), reviews(200, 1)
    result = fit_baselines(*train, *test)
    assert result["majority"]["accuracy"] == pytest.approx(np.mean(test[1]))
    assert result["tfidf_logistic"]["accuracy"] > 0.99
    assert "C = " in result["tfidf_logistic"]["settings"] and "300 training" in result["tfidf_logistic"]["settings"]
    for row in result.values():
        assert row["ci95"][0] <= row["accuracy"] <= row["ci95"][1]
    assert json.loads(json.dumps(result)) == result


def test_the_penalty_is_chosen_without_the_test_labels() -> None:
    train, (texts, labels) = reviews(400, 0), reviews(60, 1)
    honest = fit_baselines(*train, texts, labels)["tfidf_logistic"]["settings"]
    flipped = fit_baselines(*train, texts, [1 - y for y in labels])["tfidf_logistic"]["settings"]
    assert honest == flipped


def test_a_handful_of_texts_is_enough_and_a_class_that_was_not_seen_keeps_its_place() -> None:
    """Its columns are those of the labels, not of the classes that were in its training texts."""
    result = fit_baselines(["red", "red red", "blue", "so blue"], [0, 0, 2, 2], ["red", "blue", "blue"], [0, 2, 2])
    assert result["tfidf_logistic"]["accuracy"] == 1.0


@for_each(
    ("train_texts", "train_labels"),
    [(["a good film", "a fine film"], [1, 1]), (["", "  "], [0, 1]), (["…", "!!"], [0, 1])],
)
def test_what_cannot_be_fitted_is_left_out(train_texts: list[str], train_labels: list[int]) -> None:
    result = fit_baselines(train_texts, train_labels, ["a film"], [1])
    assert list(result) == ["majority"]


def clauses(good: list[str], bad: list[str], n: int, seed: int) -> tuple[list[str], list[int]]:
    """Write texts without spaces: filler of random letters around one of seven good or bad phrases."""
    rng, texts, labels = np.random.default_rng(seed), [], []
    letters = sorted(set("".join(good + bad)))
    for _ in range(n):
        label = int(rng.integers(2))
        phrase = str(rng.choice(good if label else bad))
        before, after = ("".join(rng.choice(letters, 4)) for _ in range(2))
        texts.append(before + phrase + after)
        labels.append(label)
    return texts, labels


def test_scripts_without_spaces_are_counted_by_characters() -> None:
    """By words it would know no clause again and guess; by characters it is a fair comparison."""
    good, bad = ["非常好看", "值得推荐", "十分满意"], ["非常难看", "浪费时间", "十分失望"]
    row = fit_baselines(*clauses(good, bad, 600, 0), *clauses(good, bad, 200, 1))["tfidf_logistic"]
    assert row["accuracy"] > 0.97
    assert "one, two and three characters" in row["settings"] and "script without spaces" in row["settings"]


def test_words_stay_words_where_most_texts_have_spaces() -> None:
    train, test = reviews(300, 0), reviews(100, 1)
    mixed = [f"{text} 好" for text in train[0]]
    assert "words and word pairs" in fit_baselines(mixed, train[1], *test)["tfidf_logistic"]["settings"]

"""A regressor of texts as scikit-learn uses one."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.helpers.estimators import OPTIONS, lowered
from tests.helpers.for_each import for_each

from glassformer.errors import UsageError
from glassformer.sklearn import TextRegressor
from glassformer.sklearn.inputs import TextsError

SETTINGS = OPTIONS | {"train.epochs": 6}
TEXTS = [f"{' '.join(['good'] * (i % 4))} bad word{i % 13}" for i in range(80)]
NUMBERS = [1000.0 + 50 * (i % 4) for i in range(80)]


def regressor(**parameters: Any) -> TextRegressor:
    return TextRegressor(**{"device": "cpu", "threads": 1, "options": SETTINGS} | parameters)


@pytest.fixture(scope="module")
def fitted() -> TextRegressor:
    return regressor().fit(np.array(TEXTS), np.array(NUMBERS, np.float32))


def test_it_fits_predicts_and_scores(fitted: TextRegressor) -> None:
    answers = fitted.predict(TEXTS)
    assert answers.dtype == np.float64 and answers.shape == (80,) and is_regressor(fitted)
    assert fitted.score(TEXTS, NUMBERS) == pytest.approx(r2_score(NUMBERS, answers)) and answers.std() > 5
    assert fitted.run_.task.name == "regress" and fitted.predict([]).shape == (0,)
    copied = pickle.loads(pickle.dumps(fitted))
    assert copied.predict(TEXTS[:5]) == pytest.approx(answers[:5], rel=1e-6)


@for_each(
    ("numbers", "message"),
    [
        (None, "requires y to be passed"),
        ([1.0], "80 texts and 1 numbers"),
        ([3] * 80, "80 samples with the number 3 alone"),
        (["a"] * 80, "is of type str"),
        ([1.0] * 79 + [np.nan], "number 80 of 80 is missing"),
        ([1.0] * 79 + [np.inf], "infinity"),
        ([1.0] * 79 + [1e301], "up to 1e\\+300"),
        (np.ones((80, 2)), "1d array"),
    ],
)
def test_what_cannot_be_learned_is_refused(numbers: Any, message: str) -> None:
    with pytest.raises((TextsError, ValueError), match=message):
        regressor().fit(TEXTS, numbers)


def test_a_recipe_of_classes_is_refused() -> None:
    with pytest.raises(UsageError, match="TextRegressor trains recipes of the task regress"):
        regressor(recipe="classify").fit(TEXTS, NUMBERS)


def test_in_a_pipeline_and_in_other_processes() -> None:
    pipeline = make_pipeline(FunctionTransformer(lowered), regressor(options=OPTIONS | {"train.epochs": 2}))
    scores = cross_val_score(clone(pipeline), TEXTS, NUMBERS, cv=2, n_jobs=2, scoring="neg_mean_absolute_error")
    assert scores.shape == (2,) and (scores < 0).all()


def test_in_a_search() -> None:
    search = GridSearchCV(regressor(), {"options__train__lr": [1e-7, 0.02]}, cv=2, scoring="r2")
    search.fit(TEXTS, NUMBERS)
    assert search.best_params_ == {"options__train__lr": 0.02}

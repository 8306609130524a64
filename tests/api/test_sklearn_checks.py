"""scikit-learn's own checks of estimators.

They give rows of numbers, which an estimator of texts refuses, and whose tags say so: then scikit-learn checks nothing
but cloning. So a subclass writes each row of numbers as a text; all else of it is the estimator's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator
from sklearn.utils.validation import validate_data

from glassformer.sklearn import TextClassifier, TextRegressor

OPTIONS = {
    "model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16, "ensemble_size": 1, "dropout": 0.0},
    "text": {"vocab_size": 400, "max_len": 16, "bigrams": 0, "ngrams": 0},
    "train.steps": 16,
    "train.lr": 0.02,
    "train.adversarial": 0.0,
    "train.batch_size": 64,
}
EXPECTED_FAILED_CHECKS: dict[str, str] = {}
"""Names of checks, and why they fail; none does."""
FAST = set(
    "check_estimator_cloneable check_estimator_tags_renamed check_valid_tag_types check_estimator_repr "
    "check_no_attributes_set_in_init check_do_not_raise_errors_in_init_or_set_params check_mixin_order "
    "check_parameters_default_constructible check_get_params_invariance check_set_params check_estimators_unfitted "
    "check_fit_check_is_fitted check_dont_overwrite_parameters check_fit1d check_requires_y_none check_complex_data "
    "check_classifiers_one_label check_fit2d_1sample check_estimators_pickle check_dict_unchanged".split()
)
"""Checks with one training or none; the others are slow."""


class RowsAsTexts(TextClassifier):
    """Reads a row of numbers as a text of one word for each."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        return tags

    def fit(self, X: Any, y: Any) -> RowsAsTexts:  # noqa: N803
        return super().fit(as_texts(validate_data(self, X)), y)

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        self.run_  # noqa: B018  # as the estimator, refuses first what is not fitted
        return super().predict_proba(as_texts(validate_data(self, X, reset=False)))


class RowsAsNumberedTexts(TextRegressor):
    """The same for a regressor."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        tags.regressor_tags.poor_score = True  # texts say little of how large their numbers are
        return tags

    def fit(self, X: Any, y: Any) -> RowsAsNumberedTexts:  # noqa: N803
        return super().fit(as_texts(validate_data(self, X)), y)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        self.run_  # noqa: B018
        return super().predict(as_texts(validate_data(self, X, reset=False)))


def as_texts(rows: np.ndarray) -> list[str]:
    """Return rows as texts: a word for each number rounded, and words that distinguish similar rows."""
    rounded = [" ".join(f"c{i}v{round(float(value))}" for i, value in enumerate(row)) for row in rows]
    exact = [" ".join(f"r{round(float(value) * 1000)}" for value in row[:3]) for row in rows]
    return [f"{first} {second}" for first, second in zip(rounded, exact, strict=True)]


def checks() -> list[Any]:
    """Return each check with its name and number."""
    found = list[Any]()
    for kind, prefix in ((RowsAsTexts, ""), (RowsAsNumberedTexts, "numbers-")):
        estimator, seen = kind(device="cpu", threads=1, options=OPTIONS), Counter[str]()
        for _, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            seen[name] += 1
            marks = [] if name in FAST else [pytest.mark.slow]
            if name in EXPECTED_FAILED_CHECKS:
                marks.append(pytest.mark.xfail(reason=EXPECTED_FAILED_CHECKS[name]))
            found.append(pytest.param(estimator, check, id=f"{prefix}{name}-{seen[name]}", marks=marks))
    return found


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_a_check_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_the_estimator_as_it_is_passes_what_is_checked_of_estimators_of_texts() -> None:
    results = check_estimator(TextClassifier(), expected_failed_checks=EXPECTED_FAILED_CHECKS)
    assert results and all(result["status"] == "passed" for result in results)
    results = check_estimator(TextRegressor(), expected_failed_checks=EXPECTED_FAILED_CHECKS)
    assert results and all(result["status"] == "passed" for result in results)
    assert get_tags(TextRegressor()).estimator_type == "regressor"
    tags = get_tags(TextClassifier())
    assert tags.input_tags.string and tags.input_tags.one_d_array and not tags.input_tags.two_d_array
    assert tags.target_tags.required and tags.estimator_type == "classifier"

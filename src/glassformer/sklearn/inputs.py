"""Texts and labels as callers of scikit-learn give them, checked: lists, arrays, columns of data frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from glassformer.data.datasets.labels import normalised_label
from glassformer.data.datasets.numbers import LARGEST
from glassformer.data.diagnostics import encoding_issue
from glassformer.errors import DataError
from glassformer.utils.formatting import counted


class TextsError(DataError, ValueError):
    """Texts or answers that cannot be used; a ValueError too, as scikit-learn's own estimators raise."""


def checked_texts(X: Any) -> list[str]:  # noqa: N803
    """Return texts as a list of strings.

    Raises:
        TextsError: it is no list of texts, or one of them is missing, a number, or no Unicode text.
    """
    hint, shape = 'give a list of texts: ["one text", "another"]', getattr(X, "shape", None)
    if isinstance(X, str | bytes | bytearray | Mapping | Set) or not (isinstance(X, Iterable) or shape):
        raise TextsError(f"expected a list of texts, not {type(X).__name__}", hint)
    if shape is not None and len(shape) != 1:
        message = f"expected a list of texts, not {type(X).__name__} of shape {tuple(shape)}"
        raise TextsError(message, 'choose the column of texts: X["text"]')
    texts = list(X)
    for number, text in enumerate(texts, start=1):
        where = f"text {number:,} of {len(texts):,}"
        if _is_missing(text):
            raise TextsError(f"{where} is missing: {text}", "leave out texts that are missing, and their labels")
        if not isinstance(text, str):
            raise TextsError(f"{where} is of type {type(text).__name__}, not a string", hint)
        if issue := encoding_issue(text):
            raise TextsError(f"{where}: {issue[1]}", "clean the text")
    return [str(text) for text in texts]


def checked_labels(y: Any, n: int, name: str) -> np.ndarray:
    """Return the labels of `n` texts as an array of one type; `name` is the estimator's, for messages.

    Raises:
        TextsError: there are none or not as many, some are missing, or their types differ.
        ValueError: they are numbers of a regression, or have several columns.
    """
    if y is None:
        raise TextsError(f"{name} requires y to be passed, but the target y is None", "give a label for each text")
    listed = list(y) if isinstance(y, list | tuple) or getattr(getattr(y, "dtype", 0), "kind", "") == "O" else []
    if missing := [number for number, label in enumerate(listed, start=1) if _is_missing(label)]:
        message = f"label {missing[0]:,} of {len(listed):,} is missing: {listed[missing[0] - 1]}"
        raise TextsError(message, "leave out texts without a label")
    if len({_kind(label) for label in listed}) > 1:
        kinds = ", ".join(sorted({type(label).__name__ for label in listed}))
        raise TextsError(f"labels of one type are expected, not of {kinds}", "give all of them as strings")
    labels = column_or_1d(y, warn=True)
    if len(labels) != n:
        raise TextsError(f"there are {n:,} texts and {len(labels):,} labels", "give a label for each text")
    if n == 0:
        raise TextsError("there are no texts to learn from: 0 samples", "give two or more of each class")
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def checked_numbers(y: Any, n: int, name: str) -> np.ndarray:
    """Return the numbers of `n` texts as an array of float64; `name` is the estimator's, for messages.

    Raises:
        TextsError: there are none or not as many, all are the same, or one is missing, infinite or no number.
        ValueError: they have several columns.
    """
    if y is None:
        raise TextsError(f"{name} requires y to be passed, but the target y is None", "give a number for each text")
    column = column_or_1d(y, warn=True)
    if len(column) != n:
        raise TextsError(f"there are {n:,} texts and {len(column):,} numbers", "give a number for each text")
    if n == 0:
        raise TextsError("there are no texts to learn from: 0 samples", "give two or more with different numbers")
    for number, value in enumerate(column.tolist(), start=1):
        where = f"number {number:,} of {n:,}"
        if _is_missing(value):
            raise TextsError(f"{where} is missing: Input y contains NaN.", "leave out texts without a number")
        if isinstance(value, str) or not isinstance(value, int | float | np.number | bool):
            message = f"{where} is of type {type(value).__name__}: Unknown label type, a number is expected"
            raise TextsError(message, "give numbers: [3.5, 4]")
    numbers = column.astype(np.float64)
    assert_all_finite(numbers, input_name="y")
    if np.abs(numbers).max() > LARGEST:
        raise TextsError(f"numbers up to {LARGEST:g} in size are expected", "divide them by a power of ten")
    if (numbers == numbers[0]).all():
        same = f"{counted(n, 'samples')} with the number {numbers[0]:g} alone"
        raise TextsError(f"two different numbers or more are needed, and there {'is' if n == 1 else 'are'} {same}")
    return numbers


def class_names(classes: np.ndarray) -> list[str]:
    """Return the name of each class in the run: the label as text, or its number where two would be one."""
    names = [str(label) for label in classes.tolist()]
    kept = [name for name in names if name and name == normalised_label(name) and not encoding_issue(name)]
    kept = [name for name in kept if not {"\n", "\r"} & {*name} and not _is_no_number(name)]
    return names if len({*kept}) == len(names) else [str(number) for number in range(len(names))]


def _is_no_number(name: str) -> bool:
    """Return whether a label is spelled as NaN or infinity, which is refused where other labels are numbers."""
    try:
        return not math.isfinite(float(name))
    except ValueError:
        return False


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or what pandas has in their place."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float | np.floating) and math.isnan(value))
    )


def _kind(label: Any) -> str:
    """Return the kind of a label: numbers and booleans, whether of Python or numpy, are of one kind each."""
    if isinstance(label, bool | np.bool_):
        return "boolean"
    if isinstance(label, int | float | np.number):
        return "number"
    return "text" if isinstance(label, str) else type(label).__name__

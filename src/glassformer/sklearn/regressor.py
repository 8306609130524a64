"""A regressor of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from glassformer.sklearn.base import TextEstimator
from glassformer.sklearn.inputs import checked_numbers, checked_texts


class TextRegressor(RegressorMixin, TextEstimator):
    """A regressor of texts: `fit(X, y)` with a list, array or Series of texts and one of numbers; `score` is R².

    Args:
        recipe: the name of a recipe for numbers, the path of a TOML file, or a `Config`; None for `regress`.
        out: a new folder to keep the run in, and its texts in `OUT.texts.jsonl`; without it the run is removed with the
            estimator.
        init_from: a run to initialise from (fine-tuning).
        random_state: the seed; None for the recipe's.
        device: "auto", "cpu", "cuda" or "mps"; None for the recipe's.
        threads: threads of the CPU; None for as many as other programs leave room for.
        options: settings by name, with or without their section: `{"train.epochs": 3, "d_model": 64}`.
        verbose: write what training logs to stderr.
    """

    task = "regress"

    def fit(self, X: Any, y: Any) -> TextRegressor:  # noqa: N803
        """Train a new run; errors as of `train_run`."""
        texts = checked_texts(X)
        numbers = checked_numbers(y, len(texts), type(self).__name__)
        self.train_run(texts, [repr(number) for number in numbers.tolist()])
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the number of each text."""
        run, texts = self.run_, checked_texts(X)
        with self._logging():
            return np.array([answer["number"] for answer in run.predict_stream(texts)], dtype=np.float64)

"""A classifier of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from glassformer.sklearn.base import TextEstimator
from glassformer.sklearn.inputs import TextsError, checked_labels, checked_texts, class_names


class TextClassifier(ClassifierMixin, TextEstimator):
    """A classifier of texts: `fit(X, y)` with a list, array or Series of texts and one of labels of any type.

    Texts beyond `text.max_len` tokens are cut; `run_.predict` marks them. A label of which no text is trained on, as
    with the setting `data.limit`, has the probability 0.

    Args:
        recipe: the name of a recipe that classifies, the path of a TOML file, or a `Config`; None for `classify`.
        out: a new folder to keep the run in, and its texts in `OUT.texts.jsonl`; without it the run is removed with the
            estimator.
        init_from: a run to initialise from (fine-tuning).
        random_state: the seed; None for the recipe's.
        device: "auto", "cpu", "cuda" or "mps"; None for the recipe's.
        threads: threads of the CPU; None for as many as other programs leave room for.
        options: settings by name, with or without their section: `{"train.epochs": 3, "d_model": 64}`.
        verbose: write what training logs to stderr.

    Attributes:
        classes_: the labels, sorted.
    """

    task = "classify"

    def fit(self, X: Any, y: Any) -> TextClassifier:  # noqa: N803
        """Train a new run; errors as of `train_run`."""
        texts = checked_texts(X)
        labels = checked_labels(y, len(texts), type(self).__name__)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise TextsError(
                f"two classes or more are needed, and the labels are of one class, {classes.tolist()[0]!r}"
            )
        names = class_names(classes)
        self.train_run(texts, [names[code] for code in codes])
        self.classes_, self._names = classes, names
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the most probable class of each text."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the probability of each class, in the order of `classes_`: an array (texts, classes)."""
        run, texts = self.run_, checked_texts(X)
        with self._logging():
            answers = [answer["probabilities"] for answer in run.predict_stream(texts)]
        rows = [[answer.get(name, 0.0) for name in self._names] for answer in answers]
        return np.array(rows, dtype=np.float64).reshape(len(texts), len(self._names))

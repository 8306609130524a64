"""What tests of the estimators share: settings of a small model, and a function for pipelines."""

from __future__ import annotations

from typing import Any

OPTIONS: dict[str, Any] = {
    "model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16, "ensemble_size": 1, "dropout": 0.0},
    "text": {"vocab_size": 60, "max_len": 16, "bigrams": 0, "ngrams": 0},
    "train.epochs": 4,
    "train.lr": 0.02,
    "train.adversarial": 0.0,
    "train.batch_size": 16,
}


def lowered(texts: Any) -> list[str]:
    """Return texts in lower case; pickled by name, as a search does."""
    return [text.lower() for text in texts]

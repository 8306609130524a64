"""What computes in an exported model: an `Engine`, one module a library. Token ids go in and come out. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassformer.config import DecodeConfig

Hypotheses = list[tuple[list[int], float]]
"""Tokens and score of each hypothesis, best first; an end token is one of the tokens."""


class Engine:
    """Base class; a library implements the methods of the kinds of models that it can hold.

    Attributes:
        n_tokens: tokens that the model knows; None where only computing shows it.
    """

    n_tokens: int | None = None

    def classify(self, ids: list[int], words: list[str]) -> np.ndarray:
        """Return the probabilities (C,) of the classes of a text.

        Args:
            ids: its token ids, at least one.
            words: the surface form of each token, or "".
        """
        raise NotImplementedError

    def fill(self, ids: list[int], words: list[str]) -> np.ndarray:
        """Return the logits (n, V) of the n masked tokens of a text."""
        raise NotImplementedError

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        """Return the n_best hypotheses of each source, of at most `limit` tokens."""
        raise NotImplementedError

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        """Return at most n_new tokens after each of several prompts of equal length; an end token is one of them.

        `places` are the row number and the number of earlier tokens of each, of which a run makes its random numbers. A
        library with random numbers of its own continues them as long as `decode_seed` is the same.
        """
        raise NotImplementedError

    def logits(self, ids: list[int]) -> np.ndarray:
        """Return logits (T, V) of a language model after the last T tokens, up to a constant for each."""
        raise NotImplementedError

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        """Return the log-probability of each token of a translation, and of the end token after it."""
        raise NotImplementedError

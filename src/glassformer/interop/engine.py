"""What a library computes of a model: the one protocol of CTranslate2, ONNX and, to compare with, of transformers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, DivergedError, GlassformerError, UsageError

Hypotheses = list[tuple[list[int], float]]
"""Tokens and score of each hypothesis, best first; an end token is one of the tokens."""


class Engine:
    """Base class; a library implements what the kinds of models need that it can hold."""

    def outputs(self, ids: list[int], words: Sequence[str] = ()) -> np.ndarray:
        """Return what a model gives for the tokens of a text, as finite numbers.

        That is the logits (C,) of a classifier, (S, C) of a tagger, (S, V) of a masked language model, (T, V) of a
        language model, the number (1,) of a regressor, or the vector (P,) of an encoder.

        Args:
            ids: tokens of the text with what is around it; none of an empty one.
            words: their surface forms, or "", where the tokenizer has n-grams of characters.
        """
        raise NotImplementedError

    def log_probs(self, source: list[int], target: list[int]) -> np.ndarray:
        """Return the log-probability of each token of a translation, and of the end token after it."""
        raise NotImplementedError

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        """Return the n_best hypotheses of each source, of at most `limit` tokens."""
        raise NotImplementedError

    def generate(self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int) -> list[list[int]]:
        """Return at most n_new tokens after each of several prompts of equal length; an end token is one of them.

        The library's random numbers continue as long as `decode_seed` is the same.
        """
        raise NotImplementedError


def library(purpose: str, extra: str, *packages: str) -> Any:
    """Import the packages of a library, and return the first; the error says how to install what is missing."""
    try:
        first, *_ = [importlib.import_module(package) for package in packages]
        return first
    except ImportError as error:
        several = "s" if len(packages) > 1 else ""
        hint = f'install what is missing: pip install "glassformer[{extra}]"'
        raise UsageError(f"{purpose} needs the package{several} {' and '.join(packages)}", hint) from error


def not_exported(message: str) -> CheckpointError:
    """Return the error of a folder that holds what no export writes."""
    return CheckpointError(message, "export the run again")


@contextmanager
def computing(path: Path) -> Iterator[None]:
    """Name the folder in an error of the library that computes with it; each library has classes of its own."""
    try:
        yield
    except (GlassformerError, MemoryError):
        raise
    except Exception as error:
        raise not_exported(f"the library of {path} cannot compute with it: {str(error)[:300]}") from error


def finite(numbers: Any) -> np.ndarray:
    """Return numbers as an array; raise DivergedError if one is NaN or infinite."""
    array = np.asarray(numbers)
    if not np.isfinite(array).all():
        raise DivergedError("the exported model gives numbers that are not finite", "export the run again")
    return array


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of logits (…, V)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

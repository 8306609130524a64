"""What the engines of CTranslate2, ONNX and, to compare with, of transformers share.

An engine is an object with those of these methods that its kinds of models need:

    outputs(ids, words)    what a model gives for the tokens of a text with what is around it, none of an empty one: the
                           logits (C,) of a classifier, (S, C) of a tagger, (S, V) of a masked language model, (T, V) of
                           a language model, the number (1,) of a regressor, the vector (P,) of an encoder; `words` are
                           their surface forms, or "", where the tokenizer has n-grams of characters
    log_probs(source, target)    the log-probability of each token of a translation, and of the end token after it
    search(sources, decode, limit, n_best)    the n_best hypotheses of each source, of at most `limit` tokens
    generate(prompts, decode, n_new)    at most n_new tokens after each of several prompts of equal length, an end token
                           one of them; its random numbers continue as long as `decode_seed` is the same
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import CheckpointError, DivergedError, GlassformerError, UsageError

Hypotheses = list[tuple[list[int], float]]
"""Tokens and score of each hypothesis, best first; an end token is one of the tokens."""


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

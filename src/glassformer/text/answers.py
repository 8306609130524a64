"""Answers of each kind of model, as dictionaries and as lines. No torch is imported here."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.errors import DataError, DivergedError

logger = logging.getLogger(__name__)


def checked_texts(texts: Any) -> list[str]:
    """Return the texts to predict as a list.

    Raises:
        DataError: what came is not a text, or not a list of texts.
    """
    if isinstance(texts, str):
        return [texts]
    hint = 'give a text, or a list of texts: predict(["one", "two"])'
    if isinstance(texts, bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        raise DataError(f"expected a text or a list of texts, and a {type(texts).__name__} came", hint)
    listed = list(texts)
    for number, text in enumerate(listed, start=1):
        if not isinstance(text, str):
            raise DataError(f"text {number} is a {type(text).__name__}, not a string", hint)
    return listed


def cut_message(n_cut: int, n: int, max_len: int) -> str:
    """Return a sentence about texts of which the model has not read all; empty if there are none."""
    are, were = ("is", "was") if n_cut == 1 else ("are", "were")
    return f"{n_cut:,} of {n:,} texts {are} longer than {max_len:,} tokens and {were} cut" if n_cut else ""


def warn_of_cut(answers: Sequence[dict[str, Any]], max_len: int) -> int:
    """Log how many answers are to texts that were cut; return their number."""
    n_cut = sum("truncated" in answer for answer in answers)
    if n_cut:
        logger.warning(cut_message(n_cut, len(answers), max_len))
    return n_cut


def warn_at_end(answers: Iterator[dict[str, Any]], max_len: int) -> Iterator[dict[str, Any]]:
    """Yield the answers, and log after the last how many are to texts that were cut."""
    n = n_cut = 0
    for answer in answers:
        n, n_cut = n + 1, n_cut + ("truncated" in answer)
        yield answer
    if n_cut:
        logger.warning(cut_message(n_cut, n, max_len))


def check_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Return the probabilities; raise DivergedError if one is NaN, as where finite weights are too large to compute."""
    if np.isnan(probabilities).any():
        raise DivergedError("the model's logits are NaN, so it has no answer", "use an earlier checkpoint")
    return probabilities


def class_answer(text: str, probabilities: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Return the most probable class of a text, and the probability of each."""
    named = dict(zip(labels, probabilities.tolist(), strict=True))
    best = labels[int(probabilities.argmax())]
    return {"text": text, "label": best, "probability": named[best], "probabilities": named}


def class_lines(answer: dict[str, Any]) -> list[str]:
    """Return a class and its probability."""
    return [f"{answer['label']}\t{answer['probability']:.4f}"]


def masked_lines(answer: dict[str, Any]) -> list[str]:
    """Return the text with the first predictions filled in, and the further ones by masked token."""
    return ["\t".join([answer["filled"], *(" ".join(p["token"] for p in one) for one in answer["guesses"])])]


def translation_lines(answer: dict[str, Any]) -> list[str]:
    """Return a translation, or the rank, score and text of each of several, apart by tabs."""
    if "n_best" not in answer:
        return [answer["translation"]]
    return [f"{i}\t{h['score']:.4f}\t{h['translation']}" for i, h in enumerate(answer["n_best"], start=1)]


def continuation_lines(answer: dict[str, Any]) -> list[str]:
    """Return a prompt with its continuation."""
    return [answer["prompt"] + answer["text"]]

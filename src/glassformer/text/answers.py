"""Answers of each kind of model, as dictionaries and as lines. No torch is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


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

"""Answers of translators and language models as lines. No torch is imported here."""

from __future__ import annotations

from typing import Any


def translation_lines(answer: dict[str, Any]) -> list[str]:
    """Return a translation, or the rank, score and text of each of several, apart by tabs."""
    if "n_best" not in answer:
        return [answer["translation"]]
    return [f"{i}\t{h['score']:.4f}\t{h['translation']}" for i, h in enumerate(answer["n_best"], start=1)]


def continuation_lines(answer: dict[str, Any]) -> list[str]:
    """Return a prompt with its continuation."""
    return [answer["prompt"] + answer["text"]]

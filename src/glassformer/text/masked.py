"""Texts in which [MASK] stands for a token: their ids, and the text with tokens in place of it. No torch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from glassformer.text.answers import check_probabilities
from glassformer.text.tokenizer import MASK, Tokenizer

logger = logging.getLogger(__name__)

N_PREDICTIONS = 5
"""Predicted tokens for each [MASK] where `--top-k` names no other number."""


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterable[tuple[list[int], list[str]]]:
    """Yield the ids of each text, and the surface form of each token; "" if the tokenizer has no n-grams."""
    if tokenizer.ngrams:
        return tokenizer.encode_with_surfaces(texts)
    return ((ids, [""] * len(ids)) for ids in tokenizer.encode_batch(texts))


def parts(tokenizer: Tokenizer, text: str) -> list[tuple[int, str]]:
    """Return the parts of a text before, between and after its [MASK] as they are encoded, and their offsets."""
    found, start = [], 0
    *before, last = text.split(MASK)
    for part in before:
        # The space before a word belongs to the word, except in a model of characters.
        found.append((start, part if tokenizer.kind == "char" else part.removesuffix(" ")))
        start += len(part) + len(MASK)
    return [*found, (start, last)]


def encode_masked(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[str]]:
    """Return the ids and the surface forms of a text in which [MASK] stands for a token."""
    (ids, words), *rest = encode(tokenizer, [part for _, part in parts(tokenizer, text)])
    for more_ids, more_words in rest:
        ids, words = [*ids, tokenizer.mask_id, *more_ids], [*words, "", *more_words]
    return ids, words


def filled(text: str, tokens: Sequence[str]) -> str:
    """Return a text with the first of its [MASK] replaced, one by each of the tokens."""
    for token in tokens:
        before, _, text = text.partition(MASK)
        text = before + token + text
    return text


def written(tokenizer: Tokenizer, token: int) -> str:
    """Return a token as it is written in a text."""
    return tokenizer.decode([token]).strip() or tokenizer.tokens([token])[0]


def top_predictions(tokenizer: Tokenizer, logits: np.ndarray, k: int) -> list[list[dict[str, Any]]]:
    """Return for each masked token the k most probable tokens, {"token", "probability"}, without special tokens.

    Args:
        tokenizer: the tokenizer.
        logits: (n, V) of the masked tokens.
        k: number of tokens for each.
    """
    n_special = tokenizer.mask_id + 1
    logits = logits[:, n_special:].astype(np.float64)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = check_probabilities(p / p.sum(axis=1, keepdims=True))
    best = (-p).argsort(axis=1, kind="stable")[:, :k]
    return [
        [{"token": written(tokenizer, int(i) + n_special), "probability": float(row[i])} for i in tokens]
        for row, tokens in zip(p, best, strict=True)
    ]


def warn_without_mask(texts: Sequence[str]) -> None:
    """Log how many texts have nothing to fill in."""
    if n := sum(MASK not in text for text in texts):
        logger.warning(f"{n} of {len(texts)} texts hold no {MASK}, so there is nothing to fill in")

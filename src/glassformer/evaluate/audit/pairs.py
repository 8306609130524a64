"""Sentence pairs that stand out from the others of their file: copies, the other language, odd lengths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from glassformer.text.ngrams import mostly_unspaced

COPIED = 0.7
"""Share of the words of the longer side that stand on both sides, from which a target counts as a copy."""
FEWEST_WORDS = 3
"""Words with letters of a pair that is judged: shorter ones may be names."""
USUAL = 0.5
"""Share of the pairs from which a fault is what the data is meant to be."""
OTHER_SIDE = 0.15
"""Mean log-odds of a character n-gram, in nats, from which a sentence counts as of the other side's language."""
DISTINCT = 0.9
"""Share of sentences whose side the n-grams must recognise for single sentences to be judged."""
FITTED = 50_000
"""Pairs whose n-grams are counted; of more a sample."""
CHUNK = 5000
LENGTH_LIMIT = 4.0
"""Robust standard deviations of the logarithm of the ratio of lengths from which a pair is listed."""
SMALLEST_SPREAD = 0.1
"""Least standard deviation that is assumed of it."""
PER_BIN = 200
"""Pairs of similar length whose median and spread are taken together; of longer pairs the ratio varies less."""
FEWEST_PAIRS = 30
_LETTERS, _LETTER = re.compile(r"[^\W\d_]+"), re.compile(r"[^\W\d_]")


def copied(source: Sequence[str], target: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Return the share of words that stand on both sides, 0 for pairs with too few words."""
    pattern = _LETTER if mostly_unspaced(target) else _LETTERS
    shares = np.zeros(len(source))
    for i, (first, second) in enumerate(zip(source, target, strict=True)):
        words = Counter(pattern.findall(first.lower())), Counter(pattern.findall(second.lower()))
        if min(map(Counter.total, words)) >= FEWEST_WORDS:
            shares[i] = (words[0] & words[1]).total() / max(map(Counter.total, words))
    return shares


def other_language(source: Sequence[str], target: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | str:
    """Return for the sources and for the targets the mean log-odds that a sentence is of the other side, or why not.

    Naive Bayes on character n-grams of the file itself: every second pair is judged by the others. Sentences with too
    few words get 0.
    """
    if len(source) < FEWEST_PAIRS:
        return f"{FEWEST_PAIRS} pairs are needed to learn what a side looks like, and there are {len(source)}"
    vectorizer = _ngram_counter()
    odds = np.zeros((2, len(source)))
    for fold in (0, 1):
        fitted = np.arange(1 - fold, len(source), 2)
        fitted = fitted[np.unique(np.linspace(0, len(fitted) - 1, min(len(fitted), FITTED // 2)).astype(np.int64))]
        of_source = _log_frequencies(vectorizer, [source[int(i)] for i in fitted])
        weights = _log_frequencies(vectorizer, [target[int(i)] for i in fitted]) - of_source
        held = np.arange(fold, len(source), 2)
        for start in range(0, len(held), CHUNK):
            chunk = held[start : start + CHUNK]
            for row, (side, sign) in enumerate(((source, 1.0), (target, -1.0))):
                x = vectorizer.transform([side[i] for i in chunk])
                n_grams = np.maximum(np.asarray(x.sum(axis=1)).ravel(), 1)
                odds[row, chunk] = sign * (x @ weights) / n_grams
    if float((odds < 0).mean()) < DISTINCT:
        return "the two sides look alike"
    for row, side in enumerate((source, target)):
        pattern = _LETTER if mostly_unspaced(side) else _LETTERS
        few = [len(pattern.findall(text)) < FEWEST_WORDS for text in side]
        odds[row, np.array(few)] = 0.0
    return odds[0], odds[1]


def _ngram_counter() -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    options: dict[str, Any] = {"norm": None, "alternate_sign": False, "dtype": np.float32}
    return HashingVectorizer(analyzer="char_wb", ngram_range=(1, 4), n_features=1 << 18, **options)


def _log_frequencies(vectorizer: Any, texts: Sequence[str]) -> np.ndarray:
    counts = np.zeros(vectorizer.n_features)
    for start in range(0, len(texts), CHUNK):
        counts += np.asarray(vectorizer.transform(texts[start : start + CHUNK]).sum(axis=0)).ravel()
    return np.log((counts + 0.5) / (counts.sum() + 0.5 * len(counts)))


def length_deviations(source: Sequence[str], target: Sequence[str]) -> Float[np.ndarray, " N"] | str:
    """Return by how many robust standard deviations the ratio of lengths differs from that of pairs as long.

    Lengths are in characters; above 0 the target is long.
    """
    n = len(source)
    if n < FEWEST_PAIRS:
        return f"{FEWEST_PAIRS} pairs are needed to know the usual ratio of lengths, and there are {n}"
    lengths = np.array([[len(first), len(second)] for first, second in zip(source, target, strict=True)])
    ratios = np.log(lengths[:, 1] + 1) - np.log(lengths[:, 0] + 1)
    order = np.argsort(lengths.max(axis=1), kind="stable")
    deviations = np.zeros(n)
    for index in np.array_split(order, max(1, n // PER_BIN)):
        median = np.median(ratios[index])
        spread = 1.4826 * np.median(np.abs(ratios[index] - median))
        deviations[index] = (ratios[index] - median) / max(spread, SMALLEST_SPREAD)
    return deviations

"""Texts that are nearly equal, found without comparing each with each.

Two texts are nearly equal if the sets of their character 5-grams, without case, punctuation and repeated spaces, have
a Jaccard similarity of `NEAR` or more. MinHash (Broder 1997): of a random order of all n-grams, two texts have the same
n-gram first with a probability that is their similarity. Texts with the same ones in all `N_ROWS` orders of one of
`N_BANDS` bands are compared exactly. Time grows with the number of characters, not with pairs: of the texts with a band
in common each is compared with the first and with the `NEIGHBOURS` before it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

NEAR = 0.8
"""Jaccard similarity of character n-grams from which texts count as nearly equal."""
WIDTH = 5
"""Characters of an n-gram; a shorter text is one n-gram."""
N_BANDS, N_ROWS = 20, 6
"""Bands and orders in each: a pair of similarity 0.8 has a band in common in 99.7% of cases, one of 0.5 in 27%."""
NEIGHBOURS = 4
CHUNK = 10_000
"""Pairs that are compared at a time."""


def normalised(text: str) -> str:
    """Return a text without case and repeated spaces; texts that are then the same count as equal."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def numbered(values: Sequence[Hashable]) -> Int[np.ndarray, " N"]:
    """Return the number of each value, counted from 0, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def near_duplicates(texts: Sequence[str], parts: Sequence[str]) -> list[tuple[int, int, float]]:
    """Return (text, an earlier one that is nearly equal, their similarity), in order; of each part the nearest."""
    from sklearn.feature_extraction.text import HashingVectorizer

    options: Any = {"n_features": 2**31 - 1, "alternate_sign": False, "norm": None, "binary": True, "dtype": np.float32}
    vectorizer = HashingVectorizer(analyzer="char", ngram_range=(WIDTH, WIDTH), preprocessor=_reduced, **options)
    grams: Any = vectorizer.transform(texts)
    sizes, best = np.diff(grams.indptr), dict[tuple[int, str], tuple[float, int]]()
    pairs = _with_a_band_in_common(grams)
    for earlier, later in (chunk.T for chunk in np.array_split(pairs, len(pairs) // CHUNK + 1)):
        both = np.asarray(grams[later].multiply(grams[earlier]).sum(axis=1), dtype=np.float64).ravel()
        similarity = both / (sizes[later] + sizes[earlier] - both)
        for k in np.flatnonzero(similarity >= NEAR).tolist():
            key, found = (int(later[k]), parts[int(earlier[k])]), (float(similarity[k]), -int(earlier[k]))
            best[key] = max(found, best.get(key, found))
    return [(later, -earlier, similarity) for (later, _), (similarity, earlier) in sorted(best.items())]


def _reduced(text: str) -> str:
    """Return a text without case, punctuation and repeated spaces; with punctuation if there is nothing else."""
    text = normalised(text)
    return (" ".join(re.findall(r"\w+", text)) or text).ljust(WIDTH, "\0")


def _with_a_band_in_common(grams: Any) -> Int[np.ndarray, "M 2"]:
    """Return the pairs (earlier, later) of texts to compare, given the n-grams of each as a row of a sparse matrix."""
    rng, n, found = np.random.default_rng(0), grams.shape[0], [np.zeros((0, 2), np.int64)]
    for _ in range(N_BANDS):
        band = np.empty((n, N_ROWS), np.uint32)
        for row in range(N_ROWS):
            shift, factor = rng.integers(2**32, size=2, dtype=np.uint32)
            mixed = (grams.indices.view(np.uint32) ^ shift) * (factor | np.uint32(1))  # an order of all n-grams
            band[:, row] = np.minimum.reduceat((mixed ^ mixed >> 15) * np.uint32(0x2C1B3C6D), grams.indptr[:-1])
        group = np.unique(band, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(group, kind="stable")
        first = np.searchsorted(group[order], group[order])
        for lag in (n, *range(1, NEIGHBOURS + 1)):
            earlier = np.maximum(first, np.arange(n) - lag)
            found.append(np.stack([order[earlier], order], axis=1)[earlier < np.arange(n)])
    return np.unique(np.concatenate(found), axis=0)

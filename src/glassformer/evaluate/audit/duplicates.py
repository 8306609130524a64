"""Texts that are nearly equal, within a part and across parts, and equal texts with different labels.

Two texts are nearly equal if the sets of their character 5-grams, without case, punctuation and repeated spaces, have
a Jaccard similarity of `NEAR` or more. Pairs are found by one-permutation MinHash with densification (Shrivastava 2017,
"Optimal Densification for Fast and Accurate Minwise Hashing") and locality-sensitive hashing in `N_BANDS` bands; those
found are compared exactly. Time and memory grow with the number of characters, not with pairs: of texts with a band in
common each is compared with the first and with the `NEIGHBOURS` before it, and reported once, with the nearest.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

NEAR = 0.8
"""Jaccard similarity of character n-grams from which texts count as nearly equal."""
WIDTH = 5
"""Characters of an n-gram; a shorter text is one n-gram."""
N_BANDS, N_ROWS = 20, 6
"""Bands and hashes in each: a pair of similarity 0.8 has a band in common in 99.7% of cases, one of 0.5 in 27%."""
NEIGHBOURS = 4
MARGIN = 0.2
"""How far an estimated similarity may be below `NEAR` for a pair to be compared: more than five standard deviations."""
CHUNK_CHARACTERS = 1 << 21
"""Characters that are hashed at a time."""
_MULTIPLIER, _OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_EMPTY = np.iinfo(np.uint64).max


class NearPair(NamedTuple):
    """An example, an earlier one that is nearly equal, and their similarity."""

    later: int
    earlier: int
    similarity: float


def normalised(text: str) -> str:
    """Return a text without case and repeated spaces; texts that are then the same count as equal."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def groups_of(texts: Sequence[str]) -> np.ndarray:
    """Return the number of the group of each text, the same for equal ones."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(normalised(text), len(numbers)) for text in texts], dtype=np.int64)


def contradictions(groups: np.ndarray, labels: Sequence[str]) -> Iterator[tuple[int, int, str | None]]:
    """Yield (example, another with the same text and another label, the label most of these texts have).

    Examples with that label are not among them. Where no label is more frequent than all others it is None, and all
    examples are.
    """
    members = defaultdict[int, list[int]](list)
    for i, group in enumerate(groups.tolist()):
        members[group].append(i)
    for rows in members.values():
        counts = Counter(labels[i] for i in rows).most_common(2)
        if len(counts) < 2:
            continue
        most = counts[0][0] if counts[0][1] > counts[1][1] else None
        for i in rows:
            if labels[i] != most:
                yield i, next(j for j in rows if labels[j] != labels[i] and most in (labels[j], None)), most


def near_duplicates(texts: Sequence[str], parts: np.ndarray | None = None) -> list[NearPair]:
    """Return for each text that is nearly equal to an earlier one the nearest of these, in order.

    With the number of the part of each text, the nearest of each part.
    """
    reduced = [_reduced(text) for text in texts]
    part_of = np.zeros(len(texts), np.int64) if parts is None else parts
    filled = np.array([i for i, text in enumerate(reduced) if text], dtype=np.int64)
    if len(filled) < 2:
        return []
    first, second = _likely_pairs([reduced[i] for i in filled])
    best: dict[tuple[int, int], tuple[float, int]] = {}
    last, grams = -1, frozenset[str]()
    for later, earlier in zip(filled[second].tolist(), filled[first].tolist(), strict=True):
        if later != last:
            last, grams = later, _grams(reduced[later])
        other = grams if reduced[earlier] == reduced[later] else _grams(reduced[earlier])
        similarity, key = len(grams & other) / len(grams | other), (later, int(part_of[earlier]))
        if similarity >= NEAR and (similarity, -earlier) > best.get(key, (0.0, 0)):
            best[key] = similarity, -earlier
    return [NearPair(later, -earlier, similarity) for (later, _), (similarity, earlier) in sorted(best.items())]


def _likely_pairs(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (earlier, later), ordered by the later one, whose signatures are similar."""
    signatures = _signatures(texts)
    first, second = _candidates(signatures)
    likely = np.zeros(len(first), dtype=bool)
    for start in range(0, len(first), 1 << 16):
        chunk = slice(start, start + (1 << 16))
        likely[chunk] = (signatures[first[chunk]] == signatures[second[chunk]]).mean(axis=1) > NEAR - MARGIN
    return first[likely], second[likely]


def _reduced(text: str) -> str:
    """Return a text without case, punctuation and repeated spaces; with punctuation if there is nothing else."""
    text = normalised(text)
    return " ".join(re.findall(r"\w+", text)) or text


def _grams(text: str) -> frozenset[str]:
    return frozenset(text[i : i + WIDTH] for i in range(max(1, len(text) - WIDTH + 1)))


def _signatures(texts: Sequence[str]) -> np.ndarray:
    """Return the signatures (N, bands · rows): in each bin the least hash of the n-grams that fall into it."""
    n_bins = N_BANDS * N_ROWS
    signatures = np.full((len(texts), n_bins), _EMPTY, dtype=np.uint64)
    start = 0
    while start < len(texts):
        end, size = start, 0
        while end < len(texts) and (end == start or size + len(texts[end]) <= CHUNK_CHARACTERS):
            size += len(texts[end])
            end += 1
        rows, hashes = _hashed(texts[start:end])
        bins = (hashes % np.uint64(n_bins)).astype(np.int64)
        np.minimum.at(signatures[start:end], (rows, bins), hashes)
        start = end
    _fill_empty_bins(signatures)
    return signatures.astype(np.uint32)  # the lower bits; equal hashes stay equal, and memory is halved


def _hashed(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of the n-grams of all texts, and the row of each."""
    padded = [text.ljust(WIDTH, "\0") for text in texts]
    lengths = np.array([len(text) for text in padded])
    codes = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    n = len(codes) - WIDTH + 1
    hashes = np.zeros(n, dtype=np.uint64)
    for i in range(WIDTH):
        hashes = hashes * _MULTIPLIER + codes[i : i + n]
    hashes = _mixed(hashes)
    rows = np.repeat(np.arange(len(texts)), lengths)[:n]
    inside = np.repeat(np.cumsum(lengths), lengths)[:n] >= np.arange(n) + WIDTH  # not over the end of a text
    return rows[inside], hashes[inside]


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return hashes whose bits all depend on all bits of x."""
    x = (x ^ (x >> np.uint64(30))) * _OTHER
    x = (x ^ (x >> np.uint64(27))) * _MULTIPLIER
    return x ^ (x >> np.uint64(31))


def _fill_empty_bins(signatures: np.ndarray) -> None:
    """Copy into each empty bin a full one of the same text; which is tried first, second, … is the same for all."""
    n_bins = signatures.shape[1]
    rng = np.random.default_rng(0)
    empty = signatures == _EMPTY
    original = signatures.copy()
    for _ in range(4 * n_bins):
        if not empty.any():
            return
        source = rng.integers(n_bins, size=n_bins)
        taken = empty & (original[:, source] != _EMPTY)
        signatures[taken] = original[:, source][taken]
        empty &= ~taken


def _candidates(signatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (earlier, later) with a band in common, ordered by the later one."""
    n, found = len(signatures), [np.zeros(0, np.int64)]
    for band in range(N_BANDS):
        keys = np.zeros(n, dtype=np.uint64)
        for column in range(band * N_ROWS, (band + 1) * N_ROWS):
            keys = _mixed(keys * _MULTIPLIER + signatures[:, column])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        begins = np.repeat(starts, np.diff(np.append(starts, n)))
        for lag in range(1, NEIGHBOURS + 1):
            later = np.flatnonzero(np.arange(n) - begins >= lag)
            found.append(order[later] * n + order[later - lag])
        later = np.flatnonzero(np.arange(n) - begins > NEIGHBOURS)
        found.append(order[later] * n + order[begins[later]])
        if len(found) > 16:
            found = [np.unique(np.concatenate(found))]
    later, earlier = np.divmod(np.unique(np.concatenate(found)), n)
    return earlier, later

"""Stretches of parallel text whose lines are shifted: by IBM model 1, estimated on the pairs themselves.

The model (Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4) is a table of
translations of words. A pair's score is the mean over its target words of log(λ + (1 − λ) P(word | source) / P(word)):
above 0 where the source explains the target. The pairs are scored by a model of other blocks of lines, with the target
of each line and with those up to two lines before and after; the cheapest path through these offsets, where each
change costs `CHANGE`, gives the stretches (Viterbi 1967).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from glassformer.text.ngrams import mostly_unspaced

OFFSETS = (0, -1, 1, -2, 2)
"""Lines by which targets may be shifted; among equals the first is preferred."""
FEWEST_PAIRS = 100
FEWEST_LINES = 3
"""Lines of the shortest stretch that is reported."""
BLOCK = 250
"""Lines of a block; every second block is scored by the model of the others."""
CHANGE = 12.0
"""Cost of a change of offset, in nats; the score of a line is that of `MOST_WORDS` words at most."""
MOST_WORDS = 12
MIXED = 0.1
"""The share λ of a word's own frequency."""
ITERATIONS = 5
MAX_WORDS, LONGEST = 30_000, 40
"""Most frequent words of a side, and words of a sentence, that the model knows."""
MAX_ENTRIES = 6_000_000
"""Pairs of words in memory at a time, of pairs drawn evenly from the file where there are more."""
PROBED = 4000
"""Pairs on which it is decided which offset the model is estimated at."""
INFORMATIVE = 0.05
"""Mean score, in nats a word, below which the words of the two sides say nothing of each other."""


_WORD, _CHARACTER = re.compile(r"\w+"), re.compile(r"\w")


@dataclass(frozen=True)
class Stretch:
    """Lines first…last (counted from 0), whose targets stand `offset` lines below; the gain in score, nats a word."""

    first: int
    last: int
    offset: int
    gain: float


def misaligned_stretches(source: Sequence[str], target: Sequence[str]) -> list[Stretch] | str:
    """Return the stretches, or why they cannot be looked for."""
    if len(source) < FEWEST_PAIRS:
        return f"{FEWEST_PAIRS} pairs are needed to learn which words belong together, and there are {len(source)}"
    src, tgt = _Words(source), _Words(target)
    probed = {offset: _probe(src, tgt, offset) for offset in OFFSETS}
    base = max(OFFSETS, key=lambda offset: round(probed[offset], 2))
    if probed[base] < INFORMATIVE:
        return "the words of the two sides do not predict each other"
    blocks = np.arange(len(source)) // BLOCK % 2
    scores = np.full((len(source), len(OFFSETS)), -np.inf)
    for fold in (0, 1):
        model = _Model(src, tgt, np.flatnonzero(blocks != fold), base)
        lines = np.flatnonzero(blocks == fold)
        for column, offset in enumerate(OFFSETS):
            inside = lines[(lines + offset >= 0) & (lines + offset < len(target))]
            scores[inside, column] = model.scores(src, tgt, inside, inside + offset)
    return list(_stretches(scores, np.minimum(tgt.lengths, MOST_WORDS)))


def _probe(src: _Words, tgt: _Words, offset: int) -> float:
    """Return the mean score of held-out pairs under a model estimated at an offset."""
    chosen = _spread(len(src.ids) - 4, 2 * PROBED) + 2
    fitted, held = chosen[chosen // BLOCK % 2 == 0], chosen[chosen // BLOCK % 2 == 1]
    if not len(fitted) or not len(held):
        fitted, held = chosen[::2], chosen[1::2]
    return float(_Model(src, tgt, fitted, offset).scores(src, tgt, held, held + offset).mean())


def _stretches(scores: Float[np.ndarray, "N O"], weights: np.ndarray) -> Iterator[Stretch]:
    """Yield the runs of lines on the best path whose offset is not 0."""
    n, n_offsets = scores.shape
    worst = np.where(np.isfinite(scores), scores, -1e3)
    emitted = worst * weights[:, None]
    came_from = np.zeros((n, n_offsets), dtype=np.int8)
    best = emitted[0].copy()
    best[1:] -= CHANGE
    for i in range(1, n):
        jump = int(best.argmax())
        stays = best >= best[jump] - CHANGE
        came_from[i] = np.where(stays, np.arange(n_offsets), jump)
        best = np.where(stays, best, best[jump] - CHANGE) + emitted[i]
    path = np.empty(n, dtype=np.int64)
    path[-1] = int(best.argmax())
    for i in range(n - 1, 0, -1):
        path[i - 1] = came_from[i, path[i]]
    borders = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1], [True]]))
    for first, after in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        if path[first] and after - first >= FEWEST_LINES:
            gain = worst[first:after, path[first]] - np.maximum(worst[first:after, 0], -5.0)
            yield Stretch(first, after - 1, OFFSETS[path[first]], float(gain.mean()))


class _Words:
    """The words of a side as numbers from 1, in arrays; words in one sentence alone are left out."""

    def __init__(self, texts: Sequence[str]) -> None:
        pattern = _CHARACTER if mostly_unspaced(texts) else _WORD
        counts = Counter(word for text in texts for word in set(pattern.findall(text.lower())))
        known = [word for word, n in counts.most_common(MAX_WORDS) if n > 1]
        number = {word: i for i, word in enumerate(known, start=1)}
        self.size = len(known) + 1
        self.ids = [
            np.array([number[w] for w in pattern.findall(text.lower())[:LONGEST] if w in number], dtype=np.int64)
            for text in texts
        ]
        self.lengths = np.array([len(ids) for ids in self.ids])


class _Model:
    """P(target word | source word) of the pairs (i, i + offset), with source word 0 for "none"."""

    def __init__(self, src: _Words, tgt: _Words, lines: np.ndarray, offset: int) -> None:
        self.width = tgt.size
        lines = lines[(lines + offset >= 0) & (lines + offset < len(tgt.ids))]
        entries = np.cumsum((src.lengths[lines] + 1) * tgt.lengths[lines + offset])
        if len(entries) and entries[-1] > MAX_ENTRIES:
            lines = lines[_spread(len(lines), max(1, int(len(lines) * MAX_ENTRIES / entries[-1])))]
        keys, sizes = self._entries(src, tgt, lines, lines + offset)
        self.keys, which = np.unique(keys, return_inverse=True)
        of_source = self.keys // self.width
        counts = np.bincount(keys % self.width, np.repeat(1 / sizes, sizes), self.width) if len(keys) else np.zeros(1)
        self.frequency = (counts + 1) / (counts.sum() + self.width)
        self.probability = np.ones(len(self.keys))
        starts = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
        for _ in range(ITERATIONS if len(keys) else 0):
            p = self.probability[which]
            p /= np.repeat(np.add.reduceat(p, starts), sizes)
            expected = np.bincount(which, p, len(self.keys))
            self.probability = expected / np.bincount(of_source, expected)[of_source]

    def _entries(self, src: _Words, tgt: _Words, lines: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a key for each target word with each source word, and the number of source words at each target."""
        keys, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for i, j in zip(lines.tolist(), other.tolist(), strict=True):
            sources = np.concatenate([[0], src.ids[i]])
            keys.append((tgt.ids[j][:, None] + sources * self.width).ravel())
            sizes.append(np.full(len(tgt.ids[j]), len(sources)))
        return np.concatenate(keys), np.concatenate(sizes)

    def scores(self, src: _Words, tgt: _Words, lines: np.ndarray, other: np.ndarray) -> Float[np.ndarray, " N"]:
        """Return the mean score of the target words of each pair; 0 of a pair without any."""
        found = np.zeros(len(lines))
        for start in range(0, len(lines), 1000):
            chunk = slice(start, start + 1000)
            keys, sizes = self._entries(src, tgt, lines[chunk], other[chunk])
            if not len(keys) or not len(self.keys):
                continue
            where = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            p = np.where(self.keys[where] == keys, self.probability[where], 0.0)
            starts = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
            explained = np.add.reduceat(p, starts) / sizes / self.frequency[keys[starts] % self.width]
            n_words = tgt.lengths[other[chunk]]
            of_line = np.repeat(np.arange(len(n_words)), n_words)
            sums = np.bincount(of_line, np.log(MIXED + (1 - MIXED) * explained), len(n_words))
            found[chunk] = sums / np.maximum(n_words, 1)
        return found


def _spread(n: int, most: int) -> np.ndarray:
    """Return at most so many of the numbers 0…n−1, spread evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))

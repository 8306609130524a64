"""BPE-dropout (Provilkov et al. 2020): in training, a word is cut into pieces a little differently every time.

The usual pieces of a word join its letters by the rules that BPE learned, the earliest rule first; with dropout
each rule that could apply is passed over with some probability, so that words fall into rarer and smaller pieces
now and then, and the model learns what words are made of.

Everything here is in ids: the letters of a word are found by taking its pieces apart again. Some segmentations of
each word are drawn once; an epoch chooses among them at each place where the word stands. Both are pure functions
of seed and epoch, so a resumed run sees what it would have seen. (The dropout of the `tokenizers` library cannot
be seeded, and is weaker than the paper's: an outdated entry of its queue brings back the rules passed over.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from glassformer.config import Config
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.ragged import Ragged
from glassformer.text.tokenizer import Tokenizer

Rules = Mapping[tuple[int, int], tuple[int, int]]
"""Two neighbouring ids → the rank of the rule that joins them, and the id they become."""
N_DRAWN = 8
"""Segmentations drawn of each word."""


def segment(letters: Sequence[int], rules: Rules, p: float, draw: Callable[[], float]) -> list[int]:
    """Join letters by the rules until none applies, each passed over with probability p every time it could.

    Args:
        letters: ids that are no rule's outcome.
        rules: as BPE learned them.
        p: 0 gives the usual pieces, 1 the letters.
        draw: the next random number in [0, 1).
    """
    ids = list(letters)
    while True:
        possible = [(*rules[pair], at) for at, pair in enumerate(pairwise(ids)) if pair in rules]
        possible.sort()
        chosen = next((rule for rule in possible if draw() >= p), None)
        if chosen is None:
            return ids
        _, joined, at = chosen
        ids[at : at + 2] = [joined]


def with_bpe_dropout(
    corpus: EncodedCorpus, tokenizer: Tokenizer, config: Config
) -> Callable[[int], EncodedCorpus]:
    """A corpus of sources and targets as each epoch sees it; its usual pieces are in `corpus`.

    Raises:
        UsageError: the tokenizer has no rules that could be passed over.
    """
    seed, p, most = config.train.seed, config.train.bpe_dropout, config.text.max_len
    columns = [VariedColumn(column, tokenizer, p, seed) for column in (corpus.ids, corpus.targets)]

    def of_epoch(epoch: int) -> EncodedCorpus:
        rng = np.random.default_rng([seed, epoch, 1])  # the plan of the epoch draws from [seed, epoch]
        ids, target = (column.drawn(rng, most) for column in columns)
        return replace(corpus, ids=ids, target=target)

    return of_epoch


class VariedColumn:
    """A column of a corpus, whose words are cut differently from epoch to epoch.

    Args:
        column: the usual ids of every example.
        tokenizer: of kind `bpe`; whose pieces they are.
        p: the probability of passing a rule over.
        seed: of the segmentations that are drawn here.

    Raises:
        UsageError: the tokenizer has no rules that could be passed over.
    """

    def __init__(self, column: Ragged, tokenizer: Tokenizer, p: float, seed: int) -> None:
        rules, begins = tokenizer.rules(), tokenizer.begins_word()[column.flat[:]]
        begins[column.offsets[:-1][column.lengths > 0]] = True
        edges = np.append(np.flatnonzero(begins), len(column.flat))
        self.first_word = np.searchsorted(edges, column.offsets)  # of each example
        flat, numbers = column.flat[:].tolist(), dict[tuple[int, ...], int]()
        spans = pairwise(edges.tolist())
        self.words = np.array(
            [numbers.setdefault(tuple(flat[a:b]), len(numbers)) for a, b in spans], np.int64
        )
        parts = {joined: pair for pair, (_, joined) in rules.items()}
        self.cuts = Ragged.of(
            cut for word in numbers for cut in (word, *_drawn(word, parts, rules, p, seed))
        )  # 1 + N_DRAWN a word, its usual pieces first

    def drawn(self, rng: np.random.Generator, max_len: int) -> Ragged:
        """The column anew; an example that would be longer than `max_len` keeps its usual ids."""
        chosen = rng.integers(1, 1 + N_DRAWN, len(self.words))
        length = self.cuts.lengths[self.words * (1 + N_DRAWN) + chosen]
        too_long = np.diff(np.append(0, np.cumsum(length))[self.first_word]) > max_len
        chosen[np.repeat(too_long, np.diff(self.first_word))] = 0
        rows = self.words * (1 + N_DRAWN) + chosen
        length, start = self.cuts.lengths[rows], self.cuts.offsets[rows]
        ends = np.append(0, np.cumsum(length))
        flat = self.cuts.flat[np.repeat(start - ends[:-1], length) + np.arange(ends[-1])]
        return Ragged(flat, ends[self.first_word])


def _drawn(
    word: tuple[int, ...], parts: Mapping[int, tuple[int, int]], rules: Rules, p: float, seed: int
) -> Iterator[list[int]]:
    """N_DRAWN segmentations of a word, from its usual pieces."""
    letters, rng = list(word), np.random.default_rng([seed, *word])
    while any(piece in parts for piece in letters):
        letters = [part for piece in letters for part in parts.get(piece, (piece,))]
    for _ in range(N_DRAWN):
        yield segment(letters, rules, p, rng.random)

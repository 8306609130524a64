"""Pairs of neighbouring words: which of them are common enough for a vector of their own.

"not good" says more than "not" and "good" do. Attention has to learn that from examples; a bag of words and pairs is
told (Wang and Manning 2012, "Baselines and Bigrams"), and so is a model that has rows for pairs (Joulin et al. 2017,
"Bag of Tricks for Efficient Text Classification", which hashes them; here they are listed, so that they can be read).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Int

FEWEST = 3
"""Texts that a pair must be in: what is in fewer says little of other texts."""
_CHUNK = 1 << 21
"""Pairs that are counted at a time."""


def bigrams_of_texts(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], list[list[int]]],
    token_of: Callable[[int], str | None],
    vocab_size: int,
    special: int,
    max_bigrams: int,
) -> list[str]:
    """Return the most frequent bigrams of texts as "token token", encoding 1,024 texts at a time."""
    ids = (ids for start in range(0, len(texts), 1024) for ids in encode(texts[start : start + 1024]))
    pairs = common_bigrams(ids, vocab_size, special, max_bigrams)
    return [f"{token_of(first)} {token_of(second)}" for first, second in pairs]


def common_bigrams(
    texts: Iterable[Sequence[int]], vocab_size: int, special: int, max_bigrams: int
) -> list[tuple[int, int]]:
    """Return the pairs of adjacent ids that occur in the most texts, and in at least `FEWEST`, most frequent first.

    Args:
        texts: the ids of the training texts.
        vocab_size: ids are below it.
        special: ids below this one are special tokens, which are in no pair.
        max_bigrams: maximum number of pairs.
    """
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[np.ndarray] = []
    n_waiting = 0

    def count() -> None:
        nonlocal keys, counts, n_waiting
        new, times = np.unique(np.concatenate(waiting), return_counts=True) if waiting else (keys[:0], counts[:0])
        both, where = np.unique(np.concatenate([keys, new]), return_inverse=True)
        counts = np.bincount(where, np.concatenate([counts, times]), len(both)).astype(np.int64)
        keys, n_waiting = both, 0
        waiting.clear()

    for text in texts:
        pairs = keys_of(np.asarray(text, np.int64), vocab_size, special)
        waiting.append(np.unique(pairs))
        n_waiting += len(pairs)
        if n_waiting >= _CHUNK:
            count()
    count()
    order = np.argsort(-counts, kind="stable")[:max_bigrams]
    chosen = keys[order[counts[order] >= FEWEST]]
    return [divmod(int(key), vocab_size) for key in chosen]


def keys_of(ids: Int[np.ndarray, " L"], vocab_size: int, special: int) -> Int[np.ndarray, " P"]:
    """Return first · vocab_size + second for each pair of neighbours without a special token."""
    first, second = ids[:-1], ids[1:]
    words = (first >= special) & (second >= special)
    return (first * vocab_size + second)[words]

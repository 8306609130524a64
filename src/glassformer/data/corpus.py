"""Token ids of a split as flat arrays with offsets, in memory."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from glassformer.config import TextConfig
from glassformer.data.splits import Split
from glassformer.text.backends import split_text
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class RaggedArray:
    """Sequences of different lengths in one flat array.

    Args:
        flat: the ids of all sequences, one after the other.
        offsets: where each begins, and where the last ends (one more than there are sequences).
    """

    flat: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def from_lists(sequences: Sequence[Sequence[int]]) -> RaggedArray:
        """Concatenate lists of ids."""
        flat = np.fromiter(itertools.chain.from_iterable(sequences), np.int64)
        return RaggedArray(flat, np.cumsum([0, *map(len, sequences)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Return a view of one sequence."""
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each sequence."""
        return np.diff(self.offsets)

    def padded(self, index: np.ndarray, fill: int, extra: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequences at `index`, padded on the right to the longest plus `extra`; see `gather_padded`."""
        start = self.offsets[index]
        return gather_padded(self.flat, start, self.offsets[index + 1] - start, fill, extra)


def gather_padded(
    flat: np.ndarray, start: np.ndarray, length: np.ndarray, fill: int, extra: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return spans of a flat array as rows: ids (B, S) padded with `fill`, and the mask of real ones (B, S).

    S is at least 1, so that a batch of empty texts still has a shape.
    """
    width = max(1, int(length.max(initial=0)) + extra)
    column = np.arange(width)
    real = column < length[:, None]
    rows = np.full(real.shape, fill, np.int64)
    rows[real] = flat[(start[:, None] + column)[real]]
    return rows, real


@dataclass(frozen=True)
class EncodedCorpus:
    """One split as ids.

    Args:
        ids: inputs, one sequence per example (all of a running text in one).
        target: target sequences.
        labels: (N,) target classes, or target numbers.
        surfaces: for each token of `ids` the row of its surface form in `ngrams`.
        ngrams: n-gram ids of each surface form; the first row, of padding, is empty.
        stats: counts of examples (n), of tokens kept, truncated and unknown, of truncated texts, and of the task's own.
    """

    ids: RaggedArray
    target: RaggedArray | None = None
    labels: np.ndarray | None = None
    surfaces: RaggedArray | None = None
    ngrams: RaggedArray | None = None
    stats: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each input (N,)."""
        return self.ids.lengths

    @property
    def targets(self) -> RaggedArray:
        """Return the targets of a corpus that has some."""
        assert self.target is not None
        return self.target


class Column:
    """A column that grows, one sequence of integers an example; `code` is their type, as in `array.array`."""

    def __init__(self, code: str = "i") -> None:
        self.values, self.ends = array(code), array("q", [0])

    def append(self, values: Sequence[int] = ()) -> None:
        """End a sequence with these values; what was added to `values` since the last one comes before them."""
        self.values.fromlist([*values])
        self.ends.append(len(self.values))


class CorpusWriter:
    """Collects the columns of a split, and counts tokens.

    Args:
        tokenizer: encodes all texts.
        text: `max_len` is the most tokens that `truncate` keeps.

    Attributes:
        labels: the target of each example, where that is one number.
        stats: the counts of `EncodedCorpus`.
    """

    labels: np.ndarray | None = None

    def __init__(self, tokenizer: Tokenizer, text: TextConfig) -> None:
        self.tokenizer, self.text = tokenizer, text
        self.stats: dict[str, int] = dict.fromkeys(("n", "n_tokens", "n_truncated", "n_tokens_cut", "n_unknown"), 0)
        self._columns, self._of_tokens, self._rows = dict[str, Column](), list[str](), {"": 0}

    def chunks(self, split: Split) -> Iterator[Split]:
        """Yield the split in parts, and count its examples."""
        self.stats["n"] += len(split)
        for start in range(0, len(split), CHUNK_TEXTS):
            yield split.take(range(start, min(start + CHUNK_TEXTS, len(split))))

    def truncate(self, ids: list[int], keep: str = "head", framed: bool = True) -> list[int]:
        """Return at most max_len ids, with those that belong around a text, and count the others.

        A translation is not `framed`: what begins and ends it is put there with each batch.
        """
        room = self.tokenizer.room(self.text.max_len) if framed else self.text.max_len
        kept = self.tokenizer.truncate(ids, room, keep)
        self.stats["n_truncated"] += len(kept) < len(ids)
        self.stats["n_tokens_cut"] += len(ids) - len(kept)
        return self.tokenizer.framed(kept) if framed else kept

    def column(self, name: str, of_tokens: bool = True) -> Column:
        """Return a new column of token ids, or of other numbers such as those of labels; or the one of this name."""
        if of_tokens:
            self._of_tokens.append(name)
        of_two_bytes = of_tokens and self.tokenizer.vocab_size <= 1 << 16
        return self._columns.setdefault(name, Column("H" if of_two_bytes else "i"))

    def add_surfaces(self, surfaces: Sequence[str]) -> None:
        """Add the surface forms of an example's tokens, as rows of n-grams; nothing if the tokenizer has none."""
        if self.tokenizer.ngrams is not None:
            self.column("surfaces", False).append([self._rows.setdefault(one, len(self._rows)) for one in surfaces])

    def corpus(self) -> EncodedCorpus:
        """Return what was collected, with its tokens counted; called once."""
        if self.tokenizer.ngrams is not None:
            table = self.column("ngrams", False)
            for surface in self._rows:
                table.append(self.tokenizer.ngrams.lookup(surface) if surface else ())
        # Without a copy: nothing can be added to a column then.
        columns = {n: RaggedArray(np.asarray(c.values), np.asarray(c.ends)) for n, c in self._columns.items()}
        for ids in (columns[name].flat for name in self._of_tokens):
            self.stats["n_tokens"] += len(ids)
            self.stats["n_unknown"] += int(np.count_nonzero(ids == self.tokenizer.unk_id))
        return EncodedCorpus(labels=self.labels, stats=self.stats, **columns)


CHUNK_TEXTS, CHUNK_CHARS = 1024, 1 << 18
"""Texts that are tokenized at a time, and characters of a document."""


def split_document(document: str, kind: str) -> Iterator[list[str]]:
    """Yield, a few at a time, parts of a document that can be tokenized apart; with `bpe` it stays whole."""
    whole = kind == "bpe" or len(document) <= CHUNK_CHARS
    parts = [document] if whole else split_text(document, CHUNK_CHARS)
    yield from (parts[i : i + 8] for i in range(0, len(parts), 8))


_kept: ContextVar[dict[tuple[str, ...], EncodedCorpus] | None] = ContextVar("_kept", default=None)


@contextmanager
def corpora_kept() -> Iterator[None]:
    """Keep what is encoded within, so that trainings that differ in their seed encode a text once."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def kept_corpus(encode: Callable[[], EncodedCorpus], split: Split, *settings: str) -> EncodedCorpus:
    """Return a corpus that `corpora_kept` holds for a text and settings, or what `encode` makes of them."""
    if (kept := _kept.get()) is None:
        return encode()
    if (key := (split.sha256, *settings)) not in kept:
        kept[key] = encode()
    return kept[key]

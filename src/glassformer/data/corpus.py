"""Token ids of a split as flat arrays with offsets, in memory."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from glassformer.config import TextConfig
from glassformer.data.splits import Split
from glassformer.text.backends import split_text
from glassformer.text.ngrams import NgramVocabulary
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
    def from_lists(sequences: Iterable[Sequence[int]]) -> RaggedArray:
        """Concatenate lists of ids."""
        column = Column("q")
        for ids in sequences:
            column.append(ids)
        return column.ragged()

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
        """Return the targets; raise ValueError if there are none."""
        if self.target is None:
            raise ValueError("this corpus has no targets")
        return self.target


class Column:
    """A column that grows, one sequence of integers an example; `code` is their type, as in `array.array`."""

    def __init__(self, code: str = "i") -> None:
        self.values, self.ends = array(code), array("q", [0])

    def extend(self, values: Sequence[int]) -> None:
        """Add to the sequence that the next `append` ends."""
        self.values.fromlist([*values])

    def append(self, values: Sequence[int] = ()) -> None:
        """Add values and end the sequence."""
        self.extend(values)
        self.ends.append(len(self.values))

    def ragged(self) -> RaggedArray:
        """Return the column, without a copy; nothing can be added to it then."""
        return RaggedArray(np.asarray(self.values), np.asarray(self.ends))


class SurfaceColumn(Column):
    """A column of rows of `table`, which holds the n-grams of each distinct surface form of a token."""

    def __init__(self, vocabulary: NgramVocabulary) -> None:
        super().__init__()
        self.table, self._vocabulary, self._rows = Column(), vocabulary, {"": 0}
        self.table.append()

    def append_surfaces(self, surfaces: Sequence[str]) -> None:
        """Add the surface forms of one example's tokens."""
        for surface in surfaces:
            if surface not in self._rows:
                self._rows[surface] = len(self._rows)
                self.table.append(self._vocabulary.lookup(surface))
        self.append([self._rows[surface] for surface in surfaces])


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
        names = ("n", "n_tokens", "n_truncated", "n_tokens_cut", "n_unknown")
        self.stats: dict[str, int] = dict.fromkeys(names, 0)
        self._tokens, self._others = dict[str, Column](), dict[str, Column]()

    def chunks(self, split: Split) -> Iterator[Split]:
        """Yield the split in chunks of about CHUNK_CHARS characters, and count its examples."""
        start, size = 0, 0
        for i, text in enumerate(split.text, start=1):
            size += len(text)
            if size >= CHUNK_CHARS or i == len(split):
                self.stats["n"] += i - start
                yield split.take(range(start, i))
                start, size = i, 0

    def truncate(self, ids: list[int], keep: str = "head", framed: bool = True) -> list[int]:
        """Return at most max_len ids, with those that belong around a text, and count the others.

        A translation is not `framed`: what begins and ends it is put there with each batch.
        """
        room = self.tokenizer.room(self.text.max_len) if framed else self.text.max_len
        kept = self.tokenizer.truncate(ids, room, keep)
        self.stats["n_truncated"] += len(kept) < len(ids)
        self.stats["n_tokens_cut"] += len(ids) - len(kept)
        return self.tokenizer.framed(kept) if framed else kept

    def sequences(self, name: str) -> Column:
        """Return a new column of token ids."""
        return self._tokens.setdefault(name, Column("H" if self.tokenizer.vocab_size <= 1 << 16 else "i"))

    def numbers(self, name: str) -> Column:
        """Return a new column of other numbers than tokens, such as those of labels."""
        return self._others.setdefault(name, Column())

    def surfaces(self) -> SurfaceColumn | None:
        """Return a new column of the tokens' n-grams; None if the tokenizer has no n-grams."""
        if self.tokenizer.ngrams is None:
            return None
        column = SurfaceColumn(self.tokenizer.ngrams)
        self._others |= {"surfaces": column, "ngrams": column.table}
        return column

    def corpus(self) -> EncodedCorpus:
        """Return what was collected, with its tokens counted; called once."""
        columns = {name: column.ragged() for name, column in (self._tokens | self._others).items()}
        for ids in (columns[name].flat for name in self._tokens):
            self.stats["n_tokens"] += len(ids)
            self.stats["n_unknown"] += int(np.count_nonzero(ids == self.tokenizer.unk_id))
        return EncodedCorpus(labels=self.labels, stats=self.stats, **columns)


CHUNK_CHARS = 1 << 21
"""Characters tokenized at a time."""


def split_document(document: str, kind: str) -> Iterator[list[str]]:
    """Yield, a few at a time, parts of a document that can be tokenized apart; with `bpe` it stays whole."""
    whole = kind == "bpe" or len(document) <= CHUNK_CHARS // 8
    parts = [document] if whole else split_text(document, CHUNK_CHARS // 8)
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
    if (key := (fingerprint(split), *settings)) not in kept:
        kept[key] = encode()
    return kept[key]


def fingerprint(split: Split) -> str:
    """Return a hash of every text and target with its length."""
    digest = hashlib.sha256()
    for column in (split.text, split.answer or []):
        digest.update(f"\0{len(column)}\0".encode())
        for text in column:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()

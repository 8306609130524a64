"""Token ids of a split as flat arrays with offsets, in memory; those of shards are mapped from their files."""

from __future__ import annotations

import hashlib
import io
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import SupportsIndex

import numpy as np

from glassformer.config import TextConfig
from glassformer.data.shards import ShardedIds, ShardIndex
from glassformer.data.splits import Split
from glassformer.text.backends import split_text
from glassformer.text.ngrams import NgramVocabulary
from glassformer.text.tokenizer import Tokenizer

Arrays = dict[str, np.ndarray]


class ArrayWriter:
    """Arrays in memory that grow at the end."""

    def __init__(self) -> None:
        self._bytes: dict[str, io.BytesIO] = {}
        self._dtypes: dict[str, str] = {}

    def append(self, name: str, array: np.ndarray) -> None:
        """Add elements; an array keeps the dtype it began with."""
        self._bytes.setdefault(name, io.BytesIO()).write(array.tobytes())
        self._dtypes.setdefault(name, array.dtype.str)

    def arrays(self) -> Arrays:
        return {name: np.frombuffer(data.getbuffer(), self._dtypes[name]) for name, data in self._bytes.items()}


class RaggedArray(Sequence[np.ndarray]):
    """Sequences of different lengths in one flat array.

    Args:
        flat: the ids of all sequences, one after the other; in one array, or in several that are read as one.
        offsets: where each begins, and where the last ends (one more than there are sequences).
    """

    def __init__(self, flat: np.ndarray | ShardedIds, offsets: np.ndarray) -> None:
        self.flat, self.offsets = flat, offsets

    @staticmethod
    def from_lists(sequences: Iterable[Sequence[int]]) -> RaggedArray:
        """Concatenate lists of ids in memory."""
        rows = [np.asarray(ids, np.int64) for ids in sequences]
        offsets = np.cumsum([0, *map(len, rows)])
        return RaggedArray(np.concatenate(rows) if rows else np.zeros(0, np.int64), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a view of one sequence; slices are not supported."""
        i = operator.index(index)
        if not 0 <= i < len(self):
            raise IndexError(f"sequence {i} of {len(self)}")
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
    flat: np.ndarray | ShardedIds, start: np.ndarray, length: np.ndarray, fill: int, extra: int = 0
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


VERSION = 4
"""Raised when the same text and settings give other arrays, which then have another hash."""
CHUNK_CHARS = 1 << 21
"""Characters tokenized at a time."""


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
        compute_sha256: computes `sha256` on demand, because that takes longer than encoding a sentence.
    """

    ids: RaggedArray
    target: RaggedArray | None = None
    labels: np.ndarray | None = None
    surfaces: RaggedArray | None = None
    ngrams: RaggedArray | None = None
    stats: dict[str, int] = field(default_factory=dict)
    compute_sha256: Callable[[], str] = lambda: ""

    @staticmethod
    def from_arrays(arrays: Arrays, stats: dict[str, int], compute_sha256: Callable[[], str]) -> EncodedCorpus:
        """Return the corpus whose columns a `CorpusWriter` wrote."""
        columns = {n: _ragged(arrays, n) for n in ("target", "surfaces", "ngrams") if f"{n}.offsets" in arrays}
        ids, labels = _ragged(arrays, "ids"), arrays.get("labels")
        return EncodedCorpus(ids, labels=labels, stats=stats, compute_sha256=compute_sha256, **columns)

    @cached_property
    def sha256(self) -> str:
        """Hash of the text, the tokenizer and the settings: equal hashes mean equal arrays."""
        return self.compute_sha256()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each input (N,)."""
        return self.ids.lengths

    @property
    def is_running_text(self) -> bool:
        """Return True for running text from shards, which is read in windows."""
        return isinstance(self.ids.flat, ShardedIds)

    @property
    def targets(self) -> RaggedArray:
        """Return the targets; raise ValueError if there are none."""
        if self.target is None:
            raise ValueError("this corpus has no targets")
        return self.target


class SequenceColumn:
    """A column with one sequence of integers per example, written to NAME and NAME.offsets."""

    def __init__(self, arrays: ArrayWriter, name: str, dtype: np.dtype | str) -> None:
        self._arrays, self.name, self.dtype = arrays, name, dtype
        self.n_values = 0
        arrays.append(f"{name}.offsets", np.zeros(1, "<i8"))

    def extend(self, values: Sequence[int]) -> None:
        """Add to the sequence that the next `append` ends."""
        self._arrays.append(self.name, np.asarray(values, self.dtype))
        self.n_values += len(values)

    def append(self, values: Sequence[int] = ()) -> None:
        """Add values and end the sequence."""
        self.extend(values)
        self._arrays.append(f"{self.name}.offsets", np.array([self.n_values], "<i8"))


class TokenColumn(SequenceColumn):
    """A column of token ids, counted in the corpus's statistics."""

    def __init__(self, writer: CorpusWriter, name: str) -> None:
        dtype = np.dtype("<u2" if writer.tokenizer.vocab_size <= 1 << 16 else "<i4")
        super().__init__(writer.arrays, name, dtype)
        self._stats, self._unk_id = writer.stats, writer.tokenizer.unk_id

    def extend(self, values: Sequence[int]) -> None:
        super().extend(values)
        self._stats["n_tokens"] += len(values)
        self._stats["n_unknown"] += values.count(self._unk_id)


class SurfaceColumn(SequenceColumn):
    """A column of indices into the distinct surface forms of tokens, beside a table of each form's n-grams."""

    def __init__(self, arrays: ArrayWriter, ngrams: NgramVocabulary) -> None:
        super().__init__(arrays, "surfaces", "<i4")
        self._vocabulary, self._table = ngrams, SequenceColumn(arrays, "ngrams", "<i4")
        self._index = {"": 0}
        self._table.append()

    def append_surfaces(self, surfaces: Sequence[str]) -> None:
        """Add the surface forms of one example's tokens."""
        for surface in surfaces:
            if surface not in self._index:
                self._index[surface] = len(self._index)
                self._table.append(self._vocabulary.lookup(surface))
        self.append([self._index[surface] for surface in surfaces])


class CorpusWriter:
    """Writes the columns of a split, and counts tokens.

    Args:
        arrays: takes the columns "ids", "target", "labels", "surfaces" and "ngrams".
        tokenizer: encodes all texts.
        text: `max_len` is the most tokens that `truncate` keeps.
    """

    def __init__(self, arrays: ArrayWriter, tokenizer: Tokenizer, text: TextConfig) -> None:
        self.arrays, self.tokenizer, self.text = arrays, tokenizer, text
        names = ("n", "n_tokens", "n_truncated", "n_tokens_cut", "n_unknown")
        self.stats: dict[str, int] = dict.fromkeys(names, 0)

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

    def sequences(self, name: str) -> TokenColumn:
        """Return a new column of token ids."""
        return TokenColumn(self, name)

    def numbers(self, name: str) -> SequenceColumn:
        """Return a new column of other numbers than tokens, such as those of labels."""
        return SequenceColumn(self.arrays, name, "<i4")

    def surfaces(self) -> SurfaceColumn | None:
        """Return a new column of the tokens' n-grams; None if the tokenizer has no n-grams."""
        ngrams = self.tokenizer.ngrams
        return None if ngrams is None else SurfaceColumn(self.arrays, ngrams)

    def scalars(self, name: str, values: Sequence[int] | Sequence[float], dtype: str = "<i4") -> None:
        """Write a column with one number per example."""
        self.arrays.append(name, np.asarray(values, dtype))


def split_document(document: str, kind: str) -> Iterator[list[str]]:
    """Yield, a few at a time, parts of a document that can be tokenized apart; with `bpe` it stays whole."""
    whole = kind == "bpe" or len(document) <= CHUNK_CHARS // 8
    parts = [document] if whole else split_text(document, CHUNK_CHARS // 8)
    yield from (parts[i : i + 8] for i in range(0, len(parts), 8))


def fingerprint(split: Split, *settings: object) -> str:
    """Return a hash of every text and target with its length (of shards, of their index), and of the settings."""
    digest = hashlib.sha256(json.dumps([VERSION, *settings]).encode())
    if split.shards:
        digest.update(split.shards.sha256.encode())
    for column in (split.text, split.answer or []):
        digest.update(f"\0{len(column)}\0".encode())
        for text in column:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def _ragged(arrays: Arrays, name: str) -> RaggedArray:
    return RaggedArray(arrays.get(name, np.zeros(0, "<u2")), arrays[f"{name}.offsets"])


def pretokenized_corpus(index: ShardIndex, tokenizer: Tokenizer) -> EncodedCorpus:
    """Return the shards as one running text; a DataError says that their tokenizer is another one."""
    index.check_tokenizer(tokenizer)
    counts = index.counts
    stats = {"n": counts["documents"], "n_tokens": index.n_tokens, "n_unknown": counts["unknown"]}
    ids = RaggedArray(index.ids(), np.array([0, index.n_tokens]))
    return EncodedCorpus(ids, stats=stats, compute_sha256=lambda: index.sha256)

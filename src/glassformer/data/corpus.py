"""A split as token ids, encoded once: flat arrays with offsets, memory-mapped from the cache.

A second start only maps the files, so the ids take no memory of their own. What the columns are is the task's
to say (`Task.write`); which examples make a batch is in `plans.py`, and the files are `storage.py`'s.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import TextConfig
from glassformer.data.pretokenized.index import ShardedIds
from glassformer.data.ragged import RaggedArray
from glassformer.data.splits import Split
from glassformer.data.storage import Arrays, ArrayWriter, cached_arrays
from glassformer.text.ngrams import Spelling
from glassformer.text.splitting import split_text
from glassformer.text.tokenizer import Tokenizer

VERSION = 2
"""Raised when the same text and settings begin to give other arrays, so that old caches are not read."""
CHUNK_CHARS = 1 << 21
"""Characters tokenized at a time: enough to keep the tokenizer's threads busy, little enough to forget."""


@dataclass(frozen=True)
class EncodedCorpus:
    """One split as ids.

    Args:
        ids: what goes in, a sequence an example (of running text: one sequence, the whole of it).
        target: what comes out where that is a sequence, too.
        labels: (N,) what comes out where that is a number.
        spelled: for each token of `ids` the number of its spelling.
        spellings: the n-grams of each spelling; the first is that of padding, empty.
        stats: examples (n), tokens kept, cut and unknown, texts cut, and what else the task counts.
        named: computes `sha256`, which takes longer than encoding a sentence and is seldom asked for.
    """

    ids: RaggedArray
    target: RaggedArray | None = None
    labels: np.ndarray | None = None
    spelled: RaggedArray | None = None
    spellings: RaggedArray | None = None
    stats: dict[str, int] = field(default_factory=dict)
    named: Callable[[], str] = lambda: ""

    @cached_property
    def sha256(self) -> str:
        """Hash of the text, the tokenizer and the settings: equal hashes mean equal arrays."""
        return self.named()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text that goes in."""
        return self.ids.lengths

    @property
    def running(self) -> bool:
        """Whether this is a running text from shards, to be read in windows: one sequence, far longer than any other."""
        return isinstance(self.ids.flat, ShardedIds)

    @property
    def targets(self) -> RaggedArray:
        """The targets, for those who know that there are some."""
        if self.target is None:
            raise ValueError("this corpus has no targets")
        return self.target


class Encoder:
    """Tokenizes a split chunk by chunk into a writer, counting what it does; a task says with what.

    Args:
        writer: takes the columns "ids", "target", "labels", "spelled" and "spellings".
        tokenizer: of all texts.
        text: `max_len` is the most tokens `cut` leaves.
    """

    def __init__(self, writer: ArrayWriter, tokenizer: Tokenizer, text: TextConfig) -> None:
        self.writer, self.tokenizer, self.text = writer, tokenizer, text
        self.dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<i4")
        self.ends: dict[str, int] = {}
        self.words: dict[str, int] = {"": 0}
        names = "n n_tokens n_truncated n_tokens_cut n_unknown".split()
        self.stats: dict[str, int] = dict.fromkeys(names, 0)

    def chunks(self, split: Split) -> Iterator[Split]:
        """The split in pieces of about CHUNK_CHARS characters, counted."""
        start, size = 0, 0
        for i, text in enumerate(split.text, start=1):
            size += len(text)
            if size >= CHUNK_CHARS or i == len(split):
                self.stats["n"] += i - start
                yield split.take(range(start, i))
                start, size = i, 0

    def cut(self, ids: list[int], keep: str = "head") -> list[int]:
        """At most max_len of the ids, counting what is lost."""
        kept = truncate(ids, self.text.max_len, keep)
        self.stats["n_truncated"] += len(kept) < len(ids)
        self.stats["n_tokens_cut"] += len(ids) - len(kept)
        return kept

    def begin(self, *names: str) -> None:
        """Columns of sequences, still empty; what is put into them follows."""
        for name in names:
            self.ends[name] = 0
            self.writer.append(f"{name}.offsets", np.zeros(1, "<i8"))

    def put(self, name: str, ids: list[int]) -> None:
        """One sequence of a column."""
        self.append(name, ids)
        self._end(name)

    def append(self, name: str, ids: list[int]) -> None:
        """More of the sequence that a later `put` ends."""
        self._append(name, ids, self.dtype)
        self.stats["n_tokens"] += len(ids)
        self.stats["n_unknown"] += ids.count(self.tokenizer.unk_id)

    def spell(self, words: list[str]) -> None:
        """How the tokens of one text are spelled, beside their ids: the number each spelling has here."""
        self._put("spelled", [self.words.setdefault(word, len(self.words)) for word in words], "<i4")

    def spellings(self, spelling: Spelling) -> None:
        """The n-grams of each spelling that was met."""
        self.begin("spellings")
        for word in self.words:
            self._put("spellings", spelling.numbers(word) if word else [], "<i4")

    def numbers(self, name: str, values: Sequence[int]) -> None:
        """A column of one number an example."""
        self.writer.append(name, np.asarray(values, "<i4"))

    def _append(self, name: str, numbers: list[int], dtype: np.dtype | str) -> None:
        self.writer.append(name, np.asarray(numbers, dtype))
        self.ends[name] += len(numbers)

    def _end(self, name: str) -> None:
        self.writer.append(f"{name}.offsets", np.array([self.ends[name]], "<i8"))

    def _put(self, name: str, numbers: list[int], dtype: str) -> None:
        self._append(name, numbers, dtype)
        self._end(name)


def encode_split(
    split: Split,
    encoder: Callable[[ArrayWriter], Encoder],
    write: Callable[[Encoder, Split], None],
    settings: Callable[[], Sequence[object]],
    cache: Path | None = None,
) -> EncodedCorpus:
    """Encode a split, or map what an earlier call left in the cache.

    Args:
        split: the texts.
        encoder: makes the encoder of a writer.
        write: puts the split's columns into it; what it does may depend on `settings` and nothing else.
        settings: returns JSON: all that decides how these texts become these arrays.
        cache: folder for the arrays; None, or a folder that cannot be written, keeps them in memory.
    """

    @functools.cache
    def named() -> str:
        return fingerprint(split, [VERSION, *settings()])

    def fill(writer: ArrayWriter) -> dict[str, int]:
        filled = encoder(writer)
        write(filled, split)
        return filled.stats

    arrays, stats = cached_arrays(cache, named, fill)
    more = {n: _ragged(arrays, n) for n in ("target", "spelled", "spellings") if f"{n}.offsets" in arrays}
    return EncodedCorpus(_ragged(arrays, "ids"), labels=arrays.get("labels"), stats=stats, named=named, **more)


def truncate(ids: list[Any], max_len: int, keep: str) -> list[Any]:
    """The first `max_len` ids, the last, or half of each (the odd one from the head)."""
    if len(ids) <= max_len:
        return ids
    n_tail = {"head": 0, "tail": max_len, "head+tail": max_len // 2}[keep]
    return ids[: max_len - n_tail] + ids[len(ids) - n_tail :]


def split_document(document: str, kind: str) -> Iterator[list[str]]:
    """A document in pieces that can be tokenized apart (`cuts.py`), a few at a time; of `bpe` it stays whole."""
    whole = kind == "bpe" or len(document) <= CHUNK_CHARS // 8
    pieces = [document] if whole else split_text(document, CHUNK_CHARS // 8)
    yield from (pieces[i : i + 8] for i in range(0, len(pieces), 8))


def fingerprint(split: Split, settings: Sequence[object]) -> str:
    """A hash of every text and answer with its length, and of the settings; of shards, that of their index with them."""
    digest = hashlib.sha256(json.dumps(settings).encode())
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

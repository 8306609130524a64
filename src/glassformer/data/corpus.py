"""A split as token ids, encoded once: flat arrays with offsets, memory-mapped from the cache.

A second start only maps the files. Ids are read from disk as they are needed; the texts themselves are lists
in memory, and grow with the data set. Which examples make a batch, and how a batch is padded, is in `plans.py`
and `batching.py`; the files are `storage.py`'s.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from glassformer.config import TaskName, TextConfig
from glassformer.data.splits import Split
from glassformer.data.storage import Arrays, ArrayWriter, cached_arrays
from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

VERSION = 1
"""Raised when the same text and settings begin to give other arrays, so that old caches are not read."""
CHUNK_CHARS = 1 << 21
"""Characters tokenized at a time: enough to keep the tokenizer's threads busy, little enough to forget."""

_LINE_START = re.compile(r"(?<=\S\n)(?=\S)")


class Ragged:
    """Sequences of different lengths in one flat array.

    Args:
        flat: the ids of all sequences, one after the other.
        offsets: where each begins, and where the last ends (one more than there are sequences).
    """

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat, self.offsets = flat, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> np.ndarray:
        """One sequence, a view."""
        i = operator.index(index)
        if not 0 <= i < len(self):
            raise IndexError(f"sequence {i} of {len(self)}")
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class EncodedCorpus:
    """One split as ids.

    classify: `ids` are the texts and `labels` their classes. translate: `ids` are the sources, each
    with its end token, and `target` the bare targets. lm: `ids` is one sequence, the whole running text.
    `stats` counts examples (n), tokens kept, cut and unknown, texts cut, and pairs left out.
    `sha256` is of the text, the tokenizer and the settings: equal hashes mean equal arrays.
    """

    ids: Ragged
    target: Ragged | None = None
    labels: np.ndarray | None = None
    stats: dict[str, int] = field(default_factory=dict)
    sha256: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text (translate: of each source)."""
        return self.ids.lengths

    @property
    def target_lengths(self) -> np.ndarray:
        """Tokens of each target, before its start or end token."""
        if self.target is None:
            raise ValueError("this corpus has no targets")
        return self.target.lengths


def encode_split(
    split: Split,
    tokenizer: Tokenizer,
    task: TaskName,
    text: TextConfig,
    cache: Path | None = None,
    *,
    target_tokenizer: Tokenizer | None = None,
    drop_long: bool = False,
) -> EncodedCorpus:
    """Encode a split, or map what an earlier call left in the cache.

    Args:
        split: the texts.
        tokenizer: of the texts, and of the targets unless they have their own.
        task: what the columns mean.
        text: how long a text may be and which part of a longer one is kept. A pair may have that
            many tokens on each side, start and end tokens not counted.
        cache: folder for the arrays; None, or a folder that cannot be written, keeps them in memory.
        target_tokenizer: of the targets, where there are two vocabularies.
        drop_long: leave pairs out, instead of cutting them, that are too long or empty on one side
            (training; every example of a test set must have its answer).

    Raises:
        DataError: a running text of fewer than two tokens leaves nothing to predict.
    """
    target_tokenizer = target_tokenizer or tokenizer
    settings = [
        VERSION,
        task,
        text.max_len,
        text.truncate,
        drop_long,
        tokenizer.sha256,
        target_tokenizer.sha256,
    ]
    key = _fingerprint(split, settings)
    widest = max(tokenizer.vocab_size, target_tokenizer.vocab_size)
    dtype = np.dtype("<u2" if widest <= 1 << 16 else "<i4")

    def write(writer: ArrayWriter) -> dict[str, int]:
        encoder = _Encoder(writer, tokenizer, text, dtype)
        match task:
            case "classify":
                return encoder.classify(split)
            case "translate":
                return encoder.translate(split, target_tokenizer, drop_long)
            case "lm":
                return encoder.running_text(split)

    arrays, stats = cached_arrays(cache, key, write)
    return EncodedCorpus(
        _ragged(arrays, "ids"), _optional(arrays, "target"), arrays.get("labels"), stats, key
    )


class _Encoder:
    """Tokenizes a split chunk by chunk into a writer, counting what it does."""

    def __init__(self, writer: ArrayWriter, tokenizer: Tokenizer, text: TextConfig, dtype: np.dtype) -> None:
        self.writer, self.tokenizer, self.text, self.dtype = writer, tokenizer, text, dtype
        self.ends = {"ids": 0, "target": 0}
        names = ("n", "n_tokens", "n_truncated", "n_tokens_cut", "n_unknown")
        self.stats: dict[str, int] = dict.fromkeys(names, 0)

    def classify(self, split: Split) -> dict[str, int]:
        self.writer.append("ids.offsets", np.zeros(1, "<i8"))
        for chunk in _chunks(split):
            self.stats["n"] += len(chunk)
            for ids in self.tokenizer.encode_batch(split.text[chunk.start : chunk.stop]):
                self.put("ids", self.cut(ids, self.text.truncate))
        if split.labels is not None:
            self.writer.append("labels", np.asarray(split.labels, "<i4"))
        return self.stats

    def translate(self, split: Split, target_tokenizer: Tokenizer, drop: bool) -> dict[str, int]:
        if split.target is None:
            raise DataError(f"{split.source}: there are no target sentences")
        most, end = self.text.max_len, self.tokenizer.eos_id
        self.stats |= {"n_dropped": 0, "n_empty": 0}
        for name in ("ids.offsets", "target.offsets"):
            self.writer.append(name, np.zeros(1, "<i8"))
        for chunk in _chunks(split):
            self.stats["n"] += len(chunk)
            sources = self.tokenizer.encode_batch(split.text[chunk.start : chunk.stop])
            targets = target_tokenizer.encode_batch(split.target[chunk.start : chunk.stop])
            for source, target in zip(sources, targets, strict=True):
                if drop and (not source or not target):
                    self.stats["n_empty"] += 1
                elif drop and max(len(source), len(target)) > most:
                    self.stats["n_dropped"] += 1
                else:
                    self.put("ids", [*self.cut(source), end])
                    self.put("target", self.cut(target))
        return self.stats

    def running_text(self, split: Split) -> dict[str, int]:
        """All documents as one sequence, an end token between two."""
        for i, document in enumerate(split.text):
            self.stats["n"] += 1
            if i:
                self.append("ids", [self.tokenizer.eos_id])
            for pieces in _batches_of_pieces(document, self.tokenizer.kind):
                for ids in self.tokenizer.encode_batch(pieces):
                    self.append("ids", ids)
        n = self.ends["ids"]
        if n < 2:
            raise DataError(
                f"{split.source}: a text of {n} tokens leaves nothing to predict", "give a longer text"
            )
        self.writer.append("ids.offsets", np.array([0, n], "<i8"))
        return self.stats

    def cut(self, ids: list[int], keep: str = "head") -> list[int]:
        """At most max_len of the ids, counting what is lost."""
        over = len(ids) - self.text.max_len
        if over <= 0:
            return ids
        self.stats["n_truncated"] += 1
        self.stats["n_tokens_cut"] += over
        return truncate(ids, self.text.max_len, keep)

    def put(self, name: str, ids: list[int]) -> None:
        """One sequence of a ragged column."""
        self.append(name, ids)
        self.writer.append(f"{name}.offsets", np.array([self.ends[name]], "<i8"))

    def append(self, name: str, ids: list[int]) -> None:
        self.writer.append(name, np.asarray(ids, self.dtype))
        self.ends[name] += len(ids)
        self.stats["n_tokens"] += len(ids)
        self.stats["n_unknown"] += ids.count(self.tokenizer.unk_id)


def truncate(ids: list[int], max_len: int, keep: str) -> list[int]:
    """The first `max_len` ids, the last, or half of each (the odd one from the head)."""
    if len(ids) <= max_len:
        return ids
    match keep:
        case "head":
            return ids[:max_len]
        case "tail":
            return ids[len(ids) - max_len :]
        case "head+tail":
            n_tail = max_len // 2
            return ids[: max_len - n_tail] + ids[len(ids) - n_tail :]
    raise ValueError(f"truncate must be head, tail or head+tail, not {keep!r}")


def _chunks(split: Split) -> Iterator[range]:
    """Ranges of examples of about CHUNK_CHARS characters each."""
    start, size = 0, 0
    for i, text in enumerate(split.text):
        size += len(text)
        if size >= CHUNK_CHARS:
            yield range(start, i + 1)
            start, size = i + 1, 0
    if start < len(split.text):
        yield range(start, len(split.text))


def _batches_of_pieces(document: str, kind: str) -> Iterator[list[str]]:
    """A document in pieces that can be tokenized apart, a few at a time.

    Only where that gives the same ids: characters stand alone, and the splitting rules of words and of
    byte-level BPE never join a single newline to the text on either side of it. Merged characters
    (`bpe`) know no such place, so there the document stays whole.
    """
    if kind == "bpe" or len(document) <= CHUNK_CHARS // 8:
        yield [document]
        return
    starts, wanted, batch = 0, CHUNK_CHARS // 8, []
    for found in _LINE_START.finditer(document):
        if found.start() - starts >= wanted:
            batch.append(document[starts : found.start()])
            starts = found.start()
            if len(batch) == 8:
                yield batch
                batch = []
    yield [*batch, document[starts:]]


def _fingerprint(split: Split, settings: list[object]) -> str:
    """A hash of every text, target and label with its length, and of the settings."""
    digest = hashlib.sha256(json.dumps(settings).encode())
    for column in (split.text, split.target or []):
        digest.update(f"\0{len(column)}\0".encode())
        for text in column:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    if split.labels is not None:
        digest.update(np.asarray(split.labels, "<i4").tobytes())
    return digest.hexdigest()


def _ragged(arrays: Arrays, name: str) -> Ragged:
    offsets = arrays[f"{name}.offsets"]
    return Ragged(arrays.get(name, np.zeros(0, "<u2")), offsets)


def _optional(arrays: Arrays, name: str) -> Ragged | None:
    return _ragged(arrays, name) if f"{name}.offsets" in arrays else None

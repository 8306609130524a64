"""The index of a folder of pretokenized text.

SHARDS/index.json             counts, settings, and the name, size and SHA-256 of every file
SHARDS/tokenizer.json         the tokenizer of the ids
SHARDS/shard-00000.bin …      token ids, raw and little-endian, an end token before every document
SHARDS/held-out-00000.jsonl … text held out for validation
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import CheckpointError, DataError
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.atomic_io import parse_json, sha256_file

INDEX, TOKENIZER, FORMAT = "index.json", "tokenizer.json", "glassformer-shards-1"


@dataclass(frozen=True)
class Shard:
    """A file of token ids, and the file of text that was held out beside it; `held_out` is "" if none was."""

    name: str
    tokens: int
    documents: int
    sha256: str
    unknown: int = 0
    held_out: str = ""
    held_out_documents: int = 0
    held_out_bytes: int = 0
    held_out_sha256: str = ""


class ShardedIds:
    """Token ids in several arrays, indexed as one; what is read is copied, the rest stays on disk."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = list(arrays)
        self.ends = np.cumsum([len(array) for array in self.arrays])
        self.dtype = self.arrays[0].dtype

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: np.ndarray | slice) -> np.ndarray:
        """Return the ids at these positions."""
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        ids, shard = np.empty(index.shape, self.dtype), np.searchsorted(self.ends, index, side="right")
        for number in np.unique(shard):
            array, here = self.arrays[number], shard == number
            ids[here] = array[index[here] - (self.ends[number] - len(array))]
        return ids


@dataclass(frozen=True)
class ShardIndex:
    """The index of a finished folder.

    Args:
        path: of the folder.
        dtype: of the ids, "<u2" or "<u4".
        text: settings of the tokenizer, by field of `TextConfig`.
        tokenizer: SHA-256 of the tokenizer.
        counts: tokens, documents and unknown tokens of all shards.
        shards: in order.
        sha256: of index.json, and so of all that it lists.
    """

    path: Path
    dtype: str
    text: dict[str, Any]
    tokenizer: str
    counts: dict[str, int]
    shards: tuple[Shard, ...]
    sha256: str

    @staticmethod
    def read(path: Path) -> ShardIndex:
        """Read the index of a folder; a DataError says that it is unfinished, damaged or of another format."""
        file = path / INDEX
        try:
            data = file.read_bytes()
            index = parse_json(data, file)
            if index["format"] != FORMAT or index["dtype"] not in ("<u2", "<u4"):
                got = f"{index['format']!r} of {index['dtype']!r}"
                raise DataError(f"{file}: expected the format {FORMAT!r} of '<u2' or '<u4', got {got}")
            if not index.get("finished", True):
                hint = "give the same `glassformer data encode` command again: it continues"
                raise DataError(f"{path} holds shards that are not finished", hint)
            shards = tuple(Shard(**shard) for shard in index["shards"])
            fields = {name: index[name] for name in ("dtype", "text", "tokenizer", "counts")}
            return ShardIndex(path, **fields, shards=shards, sha256=hashlib.sha256(data).hexdigest())
        except (CheckpointError, OSError, KeyError, TypeError) as error:
            raise DataError(f"{file} is not a readable index of shards ({error})") from error

    @property
    def n_tokens(self) -> int:
        """Return the number of ids to train on: all except the end token at the very beginning."""
        return self.counts["tokens"] - 1

    def ids(self) -> ShardedIds:
        """Map all ids to train on, without reading them."""
        first, *others = (np.memmap(self.path / s.name, self.dtype, "r") for s in self.shards if s.tokens)
        return ShardedIds([np.asarray(first)[1:], *map(np.asarray, others)])

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise a DataError if this is not the tokenizer of the ids."""
        if tokenizer.sha256 != self.tokenizer:
            hashes = f"{self.tokenizer[:12]}…, not {tokenizer.sha256[:12]}…"
            hint = "encode the text again: glassformer data encode … --tokenizer RUN"
            raise DataError(f"{self.path} was encoded with another tokenizer ({hashes})", hint)

    def read_held_out(self) -> list[str]:
        """Read the texts held out for validation."""
        files = [self.path / shard.held_out for shard in self.shards if shard.held_out]
        lines = (line for file in files for line in file.read_text(encoding="utf-8").split("\n") if line)
        return [json.loads(line)["text"] for line in lines]

    def verify(self) -> None:
        """Compare the size and SHA-256 of every file; a DataError names one that is missing or damaged."""
        itemsize, hint = np.dtype(self.dtype).itemsize, "restore it, or encode the text again"
        expected = [(s.name, s.tokens * itemsize, s.sha256) for s in self.shards]
        expected += [(s.held_out, s.held_out_bytes, s.held_out_sha256) for s in self.shards if s.held_out]
        for name, size, sha256 in expected:
            if not (file := self.path / name).is_file():
                raise DataError(f"{file} is missing", hint)
            if (found := file.stat().st_size) != size:
                raise DataError(f"{file}: expected {size:,} bytes, got {found:,}", hint)
            if sha256_file(file) != sha256:
                raise DataError(f"{file} is damaged: its SHA-256 is not that in {INDEX}", hint)


def is_pretokenized(path: str | Path | None) -> bool:
    """Return whether a path is a folder of shards, finished or not."""
    return path is not None and (Path(path) / INDEX).is_file()

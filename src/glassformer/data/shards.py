"""A text encoded ahead: ids in sealed shards beside an index, which are only mapped where they are read.

    SHARDS/index.json           what is in it: counts, settings, and the name, size and SHA-256 of every file
    SHARDS/tokenizer.json       whose ids these are
    SHARDS/shard-00000.bin …    ids, raw and little-endian, an end token before every document
    SHARDS/held-out-00000.jsonl what was set aside for validation, as text, for scores count its characters

The index is written last, so what has none is not finished. Who writes all this is `encode.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import CheckpointError, DataError, GlassformerError
from glassformer.files import parse_json, read_json, sha256_file, write_json
from glassformer.text.tokenizer import Tokenizer

INDEX, TOKENIZER, UNFINISHED = "index.json", "tokenizer.json", "encoding.json"
FORMAT = "glassformer-shards-1"


@dataclass(frozen=True)
class Shard:
    """A file of ids, and the file of text that was set aside where it was made; that is "" where nothing was.

    Args:
        tokens: ids in it. documents: that begin in it. sha256: of the file.
        held_out_documents, held_out_bytes: of the text.
    """

    name: str
    tokens: int
    documents: int
    sha256: str
    held_out: str = ""
    held_out_documents: int = 0
    held_out_bytes: int = 0
    held_out_sha256: str = ""


class ShardedIds:
    """Ids in several arrays, read as if they were one; what is taken out is copied, the rest stays on the disk."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = list(arrays)
        self.ends = np.cumsum([len(array) for array in self.arrays])
        self.dtype = self.arrays[0].dtype

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, places: np.ndarray | slice) -> np.ndarray:
        """The ids at these places."""
        if isinstance(places, slice):
            places = np.arange(*places.indices(len(self)))
        found, which = np.empty(places.shape, self.dtype), np.searchsorted(self.ends, places, side="right")
        for number in np.unique(which):
            array, here = self.arrays[number], which == number
            found[here] = array[places[here] - (self.ends[number] - len(array))]
        return found


@dataclass(frozen=True)
class Shards:
    """A folder of shards that is finished.

    Args:
        path: of the folder. dtype: of the ids. text: settings of its tokenizer, by field of `TextConfig`.
        tokenizer: the SHA-256 of it. counts: tokens, documents, unknown tokens and what else was counted.
        shards: in order. sha256: of the index, and so of all there is.
    """

    path: Path
    dtype: str
    text: dict[str, Any]
    tokenizer: str
    counts: dict[str, int]
    shards: tuple[Shard, ...]
    sha256: str

    @staticmethod
    def read(path: Path) -> Shards:
        """The index of a folder.

        Raises:
            DataError: it is not finished, or not readable.
        """
        if not (path / INDEX).is_file():
            told = f"{path} holds shards that are not finished"
            raise DataError(told, "give the same `glassformer data encode` command again: it goes on")
        try:
            data = (path / INDEX).read_bytes()
            index = parse_json(data, path / INDEX)
            if index["format"] != FORMAT:
                raise DataError(f"{path / INDEX} is of the format {index['format']!r}, not {FORMAT!r}")
            shards = tuple(Shard(**shard) for shard in index["shards"])
            facts = {name: index[name] for name in ("dtype", "text", "tokenizer", "counts")}
            return Shards(path, **facts, shards=shards, sha256=hashlib.sha256(data).hexdigest())
        except (CheckpointError, OSError, KeyError, TypeError) as error:
            raise DataError(f"{path / INDEX} is not readable as an index of shards ({error})") from error

    @property
    def n_tokens(self) -> int:
        """Ids to train on; the first is an end token, which nothing predicts and nothing needs."""
        return self.counts["tokens"] - 1

    def ids(self) -> ShardedIds:
        """All ids, mapped, but for that first one."""
        mapped = [np.memmap(self.path / s.name, self.dtype, "r") for s in self.shards if s.tokens]
        return ShardedIds([np.asarray(mapped[0])[1:], *map(np.asarray, mapped[1:])])

    def read_tokenizer(self) -> Tokenizer:
        """The tokenizer beside them.

        Raises:
            DataError: it is missing, damaged or another one.
        """
        try:
            tokenizer = Tokenizer.load(self.path / TOKENIZER)
        except CheckpointError as error:
            raise DataError(error.message, error.hint) from error
        self.check_tokenizer(tokenizer)
        return tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse another tokenizer than that of the ids with a DataError."""
        if tokenizer.sha256 != self.tokenizer:
            told = f"{self.path} was encoded with another tokenizer ({self.tokenizer[:12]}…, not {tokenizer.sha256[:12]}…)"
            raise DataError(told, "encode the text again: glassformer data encode … --tokenizer RUN")

    def read_held_out(self) -> list[str]:
        """The documents set aside."""
        texts: list[str] = []
        for shard in self.shards:
            if shard.held_out:
                lines = (self.path / shard.held_out).read_text(encoding="utf-8").split("\n")
                texts += [json.loads(line)["text"] for line in lines if line]
        return texts

    def check(self, stamps: Path | None) -> None:
        """Refuse files that are not what was written; each is hashed once, and again where its time or size changes.

        Args:
            stamps: a folder that remembers what was hashed on this machine; None for all of them again.

        Raises:
            DataError: a file is missing, cut short or another; it is named.
        """
        stamp = stamps / f"{self.sha256}.json" if stamps else None
        known, seen = {}, {}
        if stamp is not None and stamp.is_file():
            with suppress(GlassformerError):
                known = read_json(stamp)
        itemsize = np.dtype(self.dtype).itemsize
        wanted = [(s.name, s.tokens * itemsize, s.sha256) for s in self.shards]
        wanted += [(s.held_out, s.held_out_bytes, s.held_out_sha256) for s in self.shards if s.held_out]
        for name, size, sha256 in wanted:
            file = self.path / name
            if not file.is_file():
                raise DataError(f"{file} is missing", "restore it, or encode the text again")
            facts = file.stat()
            if facts.st_size != size:
                told = f"{file} has {facts.st_size:,} bytes, and {size:,} were written"
                raise DataError(told, "restore it, or encode the text again")
            seen[f"{file.resolve()}"] = facts.st_mtime_ns
            if known.get(f"{file.resolve()}") != facts.st_mtime_ns and sha256_file(file) != sha256:
                raise DataError(f"{file} is damaged: its bytes are not those that were written",
                                "restore it, or encode the text again")  # fmt: skip
        if stamp is not None and seen != known:
            with suppress(GlassformerError, OSError):  # a cache that cannot be written costs time, no more
                write_json(stamp, seen)


def is_shards(path: str | Path | None) -> bool:
    """Whether a path is a folder of shards, finished or not."""
    return path is not None and any((Path(path) / name).is_file() for name in (INDEX, UNFINISHED))

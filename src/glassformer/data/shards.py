"""The settings and the index of a folder of pretokenized text.

SHARDS/index.json             counts, settings, and the name, size and SHA-256 of every file
SHARDS/tokenizer.json         the tokenizer of the ids
SHARDS/shard-00000.bin …      token ids, raw and little-endian, an end token before every document
SHARDS/held-out-00000.jsonl … text held out for validation
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np

from glassformer.config import TextConfig
from glassformer.config.validation import build
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils import safe_read
from glassformer.utils.safe_read import LIMITS, check_types, dataclass_from_json


@dataclass(frozen=True)
class PretokenizeConfig:
    """Settings that, with the text and a given tokenizer, determine every byte of the shards."""

    kind: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """Which kind of tokenizer to train."""
    vocab_size: int = 8000
    """Its largest vocabulary; from 65,537 on ids take four bytes."""
    lowercase: bool = False
    """Lower-case the text first."""
    column: str = "text"
    """The field of a .jsonl that holds the text."""
    valid_fraction: float | None = None
    """Share held out for validation, whole documents (of a .txt, parts of 8 kB); a tenth, or about 4 MB, when
    absent."""
    seed: int = 0
    """Of what is held out, and of the sample that the tokenizer is trained on."""
    shard_mb: int = 64
    """Text in a shard, in millions (2^20) of characters."""


INDEX, TOKENIZER, FORMAT = "index.json", "tokenizer.json", "glassformer-shards-1"
CHUNK = 1 << 24
"""Ids that are compared with the vocabulary at a time."""
MAX_HELD_OUT_BYTES = 1 << 30


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
        data = safe_read.read_bytes(file, LIMITS["record"], DataError)
        index = safe_read.parse_json(data, file, DataError)
        if not isinstance(index, dict):
            raise DataError(f"{file} is not a readable index of shards (no JSON object)")
        if index.get("format") != FORMAT or index.get("dtype") not in ("<u2", "<u4"):
            got = f"{index.get('format')!r} of {index.get('dtype')!r}"
            raise DataError(f"{file}: expected the format {FORMAT!r} of '<u2' or '<u4', got {got[:200]}")
        if not index.get("finished", True):
            hint = "give the same `glassformer data encode` command again: it continues"
            raise DataError(f"{path} holds shards that are not finished", hint)
        try:
            facts = dataclass_from_json(_IndexFacts, index, file)
            shards = tuple(dataclass_from_json(Shard, shard, file) for shard in facts.shards)
            build(TextConfig, facts.text, "text", "its settings")
        except (CheckpointError, UsageError) as error:
            raise DataError(f"{file} is not a readable index of shards ({error})") from error
        _check_shards(shards, facts, file)
        sha256 = hashlib.sha256(data).hexdigest()
        return ShardIndex(path, facts.dtype, facts.text, facts.tokenizer, facts.counts, shards, sha256)

    @property
    def n_tokens(self) -> int:
        """Return the number of ids to train on: all except the end token at the very beginning."""
        return self.counts["tokens"] - 1

    def ids(self) -> ShardedIds:
        """Map all ids to train on, without reading them."""
        first, *others = (np.memmap(self.path / s.name, self.dtype, "r") for s in self.shards if s.tokens)
        return ShardedIds([np.asarray(first)[1:], *map(np.asarray, others)])

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise a DataError if this is not the tokenizer of the ids, or an id is beyond its vocabulary."""
        for array in self.ids().arrays if tokenizer.sha256 == self.tokenizer else ():
            largest = max((int(array[i : i + CHUNK].max()) for i in range(0, len(array), CHUNK)), default=0)
            if largest >= tokenizer.vocab_size:
                message = (
                    f"{self.path} holds the id {largest:,}, and its vocabulary has {tokenizer.vocab_size:,} tokens"
                )
                raise DataError(message, "encode the text again")
        if tokenizer.sha256 != self.tokenizer:
            hashes = f"{self.tokenizer[:12]}…, not {tokenizer.sha256[:12]}…"
            hint = "encode the text again: glassformer data encode … --tokenizer RUN"
            raise DataError(f"{self.path} was encoded with another tokenizer ({hashes})", hint)

    def read_held_out(self) -> list[str]:
        """Read the texts held out for validation; a DataError names a line that is none."""
        texts = []
        for file in [self.path / shard.held_out for shard in self.shards if shard.held_out]:
            with safe_read.open_regular(file, MAX_HELD_OUT_BYTES, DataError) as lines:
                for number, line in enumerate(iter(lambda: lines.readline(LIMITS["record"]), b""), start=1):
                    row = safe_read.parse_json(line, f"{file}:{number}", DataError)
                    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                        raise DataError(f"{file}:{number} is not an object with a text")
                    texts.append(row["text"])
        return texts

    def verify(self) -> None:
        """Compare the size and SHA-256 of every file, and the largest id with the vocabulary.

        A DataError names a file that is missing or damaged, or holds an id beyond the vocabulary.
        """
        itemsize, hint = np.dtype(self.dtype).itemsize, "restore it, or encode the text again"
        expected = [(s.name, s.tokens * itemsize, s.sha256) for s in self.shards]
        expected += [(s.held_out, s.held_out_bytes, s.held_out_sha256) for s in self.shards if s.held_out]
        for name, size, sha256 in expected:
            if not (file := self.path / name).exists():
                raise DataError(f"{file} is missing", hint)
            if (found := safe_read.check_regular(file, LIMITS["weights"], DataError)) != size:
                raise DataError(f"{file}: expected {size:,} bytes, got {found:,}", hint)
            if safe_read.sha256_regular(file, LIMITS["weights"], DataError) != sha256:
                raise DataError(f"{file} is damaged: its SHA-256 is not that in {INDEX}", hint)


@dataclass(frozen=True)
class _IndexFacts:
    """What index.json must hold, beside its format."""

    dtype: str
    text: dict[str, Any]
    tokenizer: str
    counts: dict[str, int]
    shards: list[dict[str, Any]]


def _check_shards(shards: Sequence[Shard], facts: _IndexFacts, file: Path) -> None:
    """Refuse names that are not of this folder, and counts that are not those of the shards."""
    for shard in shards:
        for name in (shard.name, *([shard.held_out] if shard.held_out else [])):
            if Path(name).name != name or not name.isprintable() or len(name) > 255:
                raise DataError(f"{file} names the file {name[:80]!r}, which is not one of its folder")
        if min(shard.tokens, shard.documents, shard.unknown, shard.held_out_bytes) < 0:
            raise DataError(f"{file} counts less than nothing in {shard.name}")
    for name in ("tokens", "documents", "unknown"):
        total = sum(getattr(shard, name) for shard in shards)
        if facts.counts.get(name) != total:
            raise DataError(f"{file} counts {facts.counts.get(name)} {name}, and its shards have {total:,}")
    if facts.counts["tokens"] < 3:
        raise DataError(f"{file} lists {facts.counts['tokens']} tokens, too few to train on")


def read_unfinished(path: Path) -> dict[str, Any]:
    """Read the index of a folder to continue, as it is; a DataError says that it is damaged or of another format."""
    file = path / INDEX
    index = safe_read.read_json_object(file, LIMITS["record"], DataError)
    kinds = {"finished": bool, "settings": dict[str, Any], "sources": dict[str, int], **get_type_hints(_IndexFacts)}
    try:
        check_types(index, kinds, file)
        for shard in index["shards"]:
            dataclass_from_json(Shard, shard, file)
    except (CheckpointError, KeyError) as error:
        raise DataError(f"{file} is not a readable index of shards ({error})") from error
    if index.get("format") != FORMAT or index.get("dtype") not in ("<u2", "<u4") or not kinds.keys() <= index.keys():
        raise DataError(f"{file} is not an index of shards of the format {FORMAT!r}")
    return index


def load_tokenizer(path: Path) -> Tokenizer:
    """Load the tokenizer of a folder of shards; a DataError says that it is damaged."""
    try:
        return Tokenizer.load(path / TOKENIZER)
    except CheckpointError as error:
        raise DataError(error.message, error.hint) from error


def is_pretokenized(path: str | Path | None) -> bool:
    """Return whether a path is a folder of shards, finished or not."""
    return path is not None and (Path(path) / INDEX).is_file()

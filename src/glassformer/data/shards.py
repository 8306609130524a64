"""Text of any size as token ids on disk: `data encode` writes a folder of them once, and training maps it.

SHARDS/index.json      counts, settings, and the SHA-256 of the two files of text
SHARDS/tokenizer.json  the tokenizer of the ids
SHARDS/ids.bin         token ids, raw and little-endian, an end token before every document
SHARDS/held-out.jsonl  text held out for validation

The text is read in order, in batches of about a million characters. A segment is a document of JSON Lines, or a part of
plain text, which may be one long document; parts are cut where this changes no id. A hash of the seed, the file's name
and the segment's position decides whether it is held out: so every reading of the text holds out the same.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import itertools
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np

from glassformer.config import TextConfig
from glassformer.config.validation import build
from glassformer.data.sources import FolderContent, is_pipe, not_read, other_format, read_folder, suffix_of
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.text.backends import find_split
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import remove_leftovers, write_durably, write_folder_atomically, write_json
from glassformer.utils.safe_read import LIMITS, dataclass_from_json

logger = logging.getLogger(__name__)

INDEX, TOKENIZER, IDS, HELD_OUT = "index.json", "tokenizer.json", "ids.bin", "held-out.jsonl"
COUNTS = ("tokens", "documents", "unknown")
MAX_HELD_OUT_BYTES = 1 << 30


# --- a folder that is read --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardIndex:
    """The index of a folder.

    Args:
        dtype: of the ids.
        counts: numbers of tokens, documents and unknown tokens to train on.
        text: settings of the tokenizer, by field of `TextConfig`.
        tokenizer: SHA-256 of the tokenizer.
        files: SHA-256 of the ids and of the text held out, by file name.
        path: of the folder.
        sha256: of index.json, and so of all that it lists.
    """

    dtype: Literal["<u2", "<u4"]
    counts: dict[str, int]
    text: dict[str, Any]
    tokenizer: str
    files: dict[str, str]
    path: Path = Path()
    sha256: str = ""

    @staticmethod
    def read(path: Path) -> ShardIndex:
        """Read the index of a folder; a DataError says that it is damaged."""
        data = safe_read.read_bytes(path / INDEX, LIMITS["record"], DataError)
        value = safe_read.parse_json(data, path / INDEX, DataError)
        try:
            index = dataclass_from_json(ShardIndex, value, path / INDEX)
            build(TextConfig, index.text, "text", "its settings")
            counts = {name: index.counts[name] for name in COUNTS}
        except (CheckpointError, UsageError, KeyError) as error:
            raise DataError(f"{path / INDEX} is not a readable index of shards ({error})") from error
        return replace(index, counts=counts, path=path, sha256=hashlib.sha256(data).hexdigest())

    @property
    def n_tokens(self) -> int:
        """Return the number of ids to train on: all except the end token at the very beginning."""
        return self.counts["tokens"] - 1

    def ids(self) -> np.memmap:
        """Map all ids to train on, without reading them."""
        return np.memmap(self.path / IDS, self.dtype, "r", offset=np.dtype(self.dtype).itemsize)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise a DataError if this is not the tokenizer of the ids, or an id is beyond its vocabulary."""
        if tokenizer.sha256 != self.tokenizer:
            hashes = f"{self.tokenizer[:12]}…, not {tokenizer.sha256[:12]}…"
            hint = "encode the text again: glassformer data encode … --tokenizer RUN"
            raise DataError(f"{self.path} was encoded with another tokenizer ({hashes})", hint)
        if (largest := int(self.ids().max())) >= (size := tokenizer.vocab_size):
            message = f"{self.path} holds the id {largest:,}, and its vocabulary has {size:,} tokens"
            raise DataError(message, "encode the text again")

    def read_held_out(self) -> list[str]:
        """Read the texts held out for validation; a DataError names a line that is none."""
        texts = []
        for where, line in safe_read.read_json_lines(self.path / HELD_OUT, MAX_HELD_OUT_BYTES, DataError):
            row = safe_read.parse_json(line, where, DataError)
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise DataError(f"{where} is not an object with a text")
            texts.append(row["text"])
        return texts

    def verify(self) -> None:
        """Compare the SHA-256 of both files, and the number of ids; a DataError names what is missing or damaged."""
        for name in (IDS, HELD_OUT):
            if safe_read.sha256_regular(self.path / name, LIMITS["weights"], DataError) != self.files.get(name):
                message = f"{self.path / name} is damaged: its SHA-256 is not that in {INDEX}"
                raise DataError(message, "restore it, or encode the text again")
        n, size = self.counts["tokens"], (self.path / IDS).stat().st_size
        if n < 3 or n * np.dtype(self.dtype).itemsize != size or not all(0 <= m <= n for m in self.counts.values()):
            raise DataError(f"{self.path / INDEX} counts what is not in {IDS}, or too little to train on")


def load_tokenizer(path: Path) -> Tokenizer:
    """Load the tokenizer of a folder of shards; a DataError says that it is damaged."""
    try:
        return Tokenizer.load(path / TOKENIZER)
    except CheckpointError as error:
        raise DataError(error.message, error.hint) from error


def is_pretokenized(path: str | Path | None) -> bool:
    """Return whether a path is a folder of shards."""
    return path is not None and (Path(path) / INDEX).is_file()


# --- text that is read ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PretokenizeConfig:
    """Settings that, with the text and a given tokenizer, determine every byte of the shards."""

    kind: Literal["word", "char", "byte-bpe"] = "byte-bpe"
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


SUFFIXES = (".txt", ".jsonl", ".ndjson")
SEGMENT_BYTES = 1 << 13
BATCH_CHARS = 1 << 20
SAMPLE_CHARS = 16 << 20
"""Characters that a tokenizer is trained on, at most."""
VALID_FRACTION, VALID_BYTES = 0.1, 4 << 20
"""By default so much of the text is held out, whichever is less."""


class Segment(NamedTuple):
    """A document, or a part of one that continues the segment before; `random` is 64 bits, drawn by seed."""

    text: str
    starts_document: bool
    held_out: bool
    random: int


def find_sources(paths: Iterable[str | Path]) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the files to encode with their names, and the names of files in given folders that are not read.

    A name is the path in the folder that was given; of a folder its text files are read, sorted by name.

    Raises:
        UsageError: a path does not exist, or is a pipe.
        DataError: a folder holds no text file, or a file is a table or of another format.
    """
    found, others = list[tuple[Path, str]](), list[str]()
    for path in map(Path, paths):
        if is_pipe(path):
            raise UsageError(f"{path} is a pipe, and the text is read twice", "write it to a file")
        if not path.exists():
            raise UsageError(f"{path}: there is no such file", "give a text file or a folder of them")
        inside = read_folder(path, SUFFIXES) if path.is_dir() else FolderContent([path], [])
        if not inside.texts:
            hint = f"give a folder with files of {', '.join(SUFFIXES)} or .gz of them"
            raise DataError(f"{path}: there is no text file in this folder", hint)
        found += [(p, p.relative_to(path).as_posix() if path.is_dir() else p.name) for p in inside.texts]
        others += inside.others
    for path, _ in found:
        if kind := "a table" if suffix_of(path) in (".csv", ".tsv", ".tab") else other_format(path):
            message = f"{path}: this is {kind}; running text or JSON Lines are expected"
            raise DataError(message, "save its texts as .txt, or as .jsonl with a field named by --column")
    return found, others


def read_segments(path: Path, name: str, config: PretokenizeConfig) -> Iterator[Segment]:
    """Yield the segments of a file in order; empty documents are left out.

    Raises:
        DataError: the file is damaged, or not text in UTF-8; with file and line.
    """
    is_plain, follows_held_out = suffix_of(path) not in SUFFIXES[1:], False
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as opened:
            file = cast(BinaryIO, opened)
            for position, text in _parts(file, path) if is_plain else _rows(file, path, config.column):
                key = f"{config.seed}\0{name}\0{position}".encode()
                random = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
                held_out = random < (config.valid_fraction or 0.0) * 2**64
                if text:
                    yield Segment(text, not is_plain or position == 0 or follows_held_out, held_out, random)
                    follows_held_out = held_out
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error})", "download or compress it again") from error


def _parts(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (n, part) of plain text; part n begins at the first place for a cut from byte n · SEGMENT_BYTES on."""
    decoder, text, line = codecs.getincrementaldecoder("utf-8-sig")(), "", 1
    for number in itertools.count():
        data, start = file.read(SEGMENT_BYTES), len(text)
        is_last = len(data) < SEGMENT_BYTES
        try:
            text += decoder.decode(data, is_last)
        except UnicodeDecodeError as error:
            line += text.count("\n") + error.object.count(b"\n", 0, error.start)
            message = f"{path}:{line}: 0x{error.object[error.start]:02X} is not UTF-8"
            raise DataError(message, "save the file as UTF-8") from None
        if "\0" in text:
            line += text.count("\n", 0, text.index("\0"))
            raise DataError(f"{path}:{line}: a byte is NUL", "check that this is a file of text")
        if is_last:
            yield max(0, number - 1), text.replace("\r\n", "\n")
            return
        if number:
            cut = find_split(text, start, len(text) - start) or start
            yield number - 1, text[:cut].replace("\r\n", "\n")
            text, line = text[cut:], line + text.count("\n", 0, cut)


def _rows(file: BinaryIO, path: Path, column: str) -> Iterator[tuple[int, str]]:
    """Yield (byte, text) of each row of JSON Lines."""
    position = 0
    for line, data in enumerate(file, start=1):
        if data.strip():
            try:
                text = json.loads(data)[column]
                text.encode()  # fails for half a surrogate pair
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                got = data[:80].decode(errors="replace").rstrip()
                message = f"{path}:{line}: expected JSON with text in the field {column!r}, got: {got}"
                raise DataError(message, "name the field that holds the text: --column") from None
            yield position, text
        position += len(data)


# --- a folder that is written -----------------------------------------------------------------------------------


def encode_text(
    out: Path, paths: Sequence[str | Path], config: PretokenizeConfig, tokenizer: Tokenizer | None = None
) -> ShardIndex:
    """Write a folder of shards, at bounded memory; without a tokenizer one is trained on a sample of the text.

    Raises:
        UsageError: the folder holds something, or the tokenizer marks where a text begins.
        DataError: the input is not text, or too little.
        ResourceError: the disk is full.
    """
    sources, others = find_sources(paths)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty", "give a new or empty folder: --out")
    if others:
        logger.warning(not_read(others))
    if config.valid_fraction is None:
        size = sum(path.stat().st_size for path, _ in sources)
        config = replace(config, valid_fraction=min(VALID_FRACTION, VALID_BYTES / max(1, size)))

    def segments() -> Iterator[Segment]:
        return itertools.chain.from_iterable(read_segments(path, name, config) for path, name in sources)

    t = _train_tokenizer(segments(), config) if tokenizer is None else tokenizer
    if t.marks_start:
        raise UsageError("this tokenizer marks where a text begins, so a text cannot be cut", "use one of byte-bpe")
    dtype: Literal["<u2", "<u4"] = "<u2" if t.vocab_size <= 1 << 16 else "<u4"
    counts = dict.fromkeys(COUNTS, 0)

    def chunks(held_out: Path) -> Iterator[bytes]:
        with open(held_out, "w", encoding="utf-8", newline="\n") as file:
            for number, batch in enumerate(_batches(segments()), start=1):
                texts = [segment.text for segment in batch if segment.held_out]
                file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
                kept = [segment for segment in batch if not segment.held_out]
                for segment, ids in zip(kept, t.encode_batch([segment.text for segment in kept]), strict=True):
                    ids = [t.eos_id, *ids] if segment.starts_document else ids
                    for name, n in zip(COUNTS, (len(ids), segment.starts_document, ids.count(t.unk_id)), strict=True):
                        counts[name] += n
                    yield np.array(ids, dtype).tobytes()
                if number % 64 == 0:
                    logger.info(f"{counts['tokens']:,} tokens")

    remove_leftovers(out.parent, f"{out.name}-")
    with write_folder_atomically(out, replace=out.exists()) as folder:
        t.save(folder / TOKENIZER)
        _, sha256 = write_durably(folder / IDS, chunks(folder / HELD_OUT))
        if counts["tokens"] < 3:
            raise DataError("too little text is left to train on", "add text, or lower --valid-fraction")
        files = {IDS: sha256, HELD_OUT: safe_read.sha256_regular(folder / HELD_OUT)}
        text = {"tokenizer": t.kind, "vocab_size": t.vocab_size, "lowercase": t.lowercases}
        facts = {"dtype": dtype, "counts": counts, "text": text, "tokenizer": t.sha256, "files": files}
        settings = {field.name: getattr(config, field.name) for field in fields(PretokenizeConfig)}
        write_json(folder / INDEX, facts | {"settings": settings})
    return ShardIndex.read(out)


def _train_tokenizer(segments: Iterable[Segment], config: PretokenizeConfig) -> Tokenizer:
    """Train a tokenizer on segments drawn by seed."""
    drawn, size = list[tuple[int, str]](), 0  # a heap: the first has the largest number
    for segment in segments:
        if not segment.held_out:
            heappush(drawn, (-segment.random, segment.text))
            size += len(segment.text)
            while size > SAMPLE_CHARS and len(drawn) > 1:
                size -= len(heappop(drawn)[1])
    if not drawn:
        raise DataError("there is no text to train a tokenizer on", "check that the files are not empty")
    text = TextConfig(tokenizer=config.kind, vocab_size=config.vocab_size, lowercase=config.lowercase)
    return Tokenizer.train([text for _, text in sorted(drawn)], text)


def _batches(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield the segments in batches of about BATCH_CHARS characters."""
    batch, size = list[Segment](), 0
    for segment in segments:
        batch.append(segment)
        size += len(segment.text)
        if size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    yield batch

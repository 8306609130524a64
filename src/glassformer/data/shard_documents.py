"""The text of source files as a stream of segments, in bounded memory, tokenized in several processes.

A segment is a document of JSON Lines, or a part of plain text, which may be one long document. A hash of the seed, the
file's name and the segment's position decides whether it is held out: so every reading of the text holds out the same.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import signal
import threading
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from io import BufferedIOBase
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glassformer.data.shards import PretokenizeConfig
from glassformer.data.sources import TABLES, is_pipe, other_format, read_folder, suffix_of
from glassformer.errors import DataError, ResourceError, UsageError
from glassformer.text.backends import find_split, split_text
from glassformer.text.tokenizer import LONG, Tokenizer

SUFFIXES = (".txt", ".jsonl", ".ndjson")
SEGMENT_BYTES = 1 << 13
MAX_UNBROKEN_CHARS = 16 << 20
_SPACE = re.compile(r"(?<=\S) (?=\S)")


class SourceFile(NamedTuple):
    """A file of text, perhaps compressed; `name` is its path relative to the folder that was given."""

    path: Path
    name: str
    size: int
    mtime_ns: int


class Segment(NamedTuple):
    """A document, or a part of one that continues the segment before; `random` is 64 bits, drawn by seed."""

    text: str
    starts_document: bool
    held_out: bool
    random: int


class FoundFiles(NamedTuple):
    """The files to encode, and the names of files in given folders that are not read."""

    sources: list[SourceFile]
    others: list[str]


def find_source_files(paths: Iterable[str | Path]) -> list[SourceFile]:
    """Return the given files, and in place of a given folder the text files in it, sorted by name.

    Raises:
        UsageError: a path does not exist, or is a pipe.
        DataError: a folder holds no text file, or a file is a table or of another format.
    """
    return find_files(paths).sources


def find_files(paths: Iterable[str | Path]) -> FoundFiles:
    """Return what `find_source_files` returns, with the names of other files in the folders; errors likewise."""
    found, others = list[tuple[Path, str]](), list[str]()
    for path in map(Path, paths):
        if is_pipe(path):
            raise UsageError(f"{path} is a pipe, and the text is read twice", "write it to a file")
        if path.is_file():
            _check_format(path)
            found.append((path, path.name))
        elif not path.is_dir():
            raise UsageError(f"{path}: there is no such file", "give a text file or a folder of them")
        elif (inside := read_folder(path, SUFFIXES)).texts:
            found += [(p, p.relative_to(path).as_posix()) for p in inside.texts]
            others += inside.others
        else:
            hint = f"give a folder with files of {', '.join(SUFFIXES)} or .gz of them"
            raise DataError(f"{path}: there is no text file in this folder", hint)
    sources = [SourceFile(path, name, path.stat().st_size, path.stat().st_mtime_ns) for path, name in found]
    return FoundFiles(sources, others)


def _check_format(path: Path) -> None:
    """Raise a DataError for a file that is neither plain text nor JSON Lines."""
    name = "a table" if suffix_of(path) in TABLES and suffix_of(path) not in SUFFIXES else other_format(path)
    if name:
        message = f"{path}: this is {name}; running text or JSON Lines are expected"
        raise DataError(message, "save its texts as .txt, or as .jsonl with a field named by --column")


def read_segments(source: SourceFile, config: PretokenizeConfig, at_spaces: bool = False) -> Iterator[Segment]:
    """Yield the segments of a file in order; empty documents are left out.

    With `at_spaces` plain text is cut at single spaces only, which are left out: for tokenizers that put the mark of a
    space before every text.

    Raises:
        DataError: the file is damaged, or not text in UTF-8; with file and line.
    """
    path, is_plain, follows_held_out = source.path, suffix_of(source.path) not in SUFFIXES[1:], False
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            texts = _split_text(file, path, at_spaces) if is_plain else _read_rows(file, path, config.column)
            for position, text in texts:
                key = f"{config.seed}\0{source.name}\0{position}".encode()
                random = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
                held_out = random < (config.valid_fraction or 0.0) * 2**64
                if text:
                    starts = not is_plain or position == 0 or follows_held_out
                    yield Segment(text, starts, held_out, random)
                    follows_held_out = held_out
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"{path}: the gzip file is damaged ({error})"
        raise DataError(message, "download or compress it again") from error


def _split_text(file: BufferedIOBase, path: Path, at_spaces: bool) -> Iterator[tuple[int, str]]:
    """Yield (n, part) of plain text; part n begins at the first place for a cut from byte n · SEGMENT_BYTES on.

    With `at_spaces` a block without such a place joins the part before it.
    """
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
        if number and at_spaces:
            if (space := _SPACE.search(text, max(0, start - 1))) is None:
                if len(text) > MAX_UNBROKEN_CHARS:
                    message = f"{path}:{line}: there is no space in {MAX_UNBROKEN_CHARS:,} characters to cut at"
                    raise DataError(message, "encode it with --kind byte-bpe or --kind char")
                continue
            yield number - 1, text[: space.start()].replace("\r\n", "\n")
            line, text = line + text.count("\n", 0, space.start()), text[space.end() :]
        elif number:
            cut = find_split(text, start, len(text) - start) or start
            yield number - 1, text[:cut].replace("\r\n", "\n")
            text, line = text[cut:], line + text.count("\n", 0, cut)


def _read_rows(file: BufferedIOBase, path: Path, column: str) -> Iterator[tuple[int, str]]:
    """Yield (byte, text) of each row of JSON Lines."""
    position = 0
    for line, data in enumerate(file, start=1):
        if data.strip():
            try:
                text = json.loads(data)[column]
                text.encode()  # fails for half a surrogate pair
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                message = f"{path}:{line}: expected JSON with text in the field {column!r}, got: "
                message += data[:80].decode(errors="replace").rstrip()
                raise DataError(message, "name the field that holds the text: --column") from None
            yield position, text
        position += len(data)


class BatchEncoder:
    """Encodes batches of segments with the tokenizer of a file."""

    def __init__(self, tokenizer: Path, dtype: str) -> None:
        loaded = Tokenizer.load(tokenizer)
        self.words = WordCache(loaded, dtype)
        self.end_token = np.array([loaded.eos_id], dtype).tobytes()

    def encode(self, batch: list[Segment]) -> bytes:
        """Return the ids of all segments as they are stored, with an end token before each document."""
        encoded = self.words.encode([segment.text for segment in batch])
        starts = (self.end_token * segment.starts_document for segment in batch)
        return b"".join(start + ids for start, ids in zip(starts, encoded, strict=True))


_encoder: BatchEncoder | None = None
"""The encoder of a worker process."""


def encode_batches(
    batches: Iterable[list[Segment]], tokenizer: Path, dtype: str, jobs: int
) -> Generator[tuple[list[Segment], bytes], None, None]:
    """Yield each batch with the ids of what is not held out, in order; 2 · jobs batches at most are in memory.

    Raises:
        ResourceError: a worker process died.
    """
    if jobs == 1:
        encoder = BatchEncoder(tokenizer, dtype)
        yield from ((batch, encoder.encode(_without_held_out(batch))) for batch in batches)
        return
    waiting: deque[tuple[list[Segment], Future[bytes]]] = deque()
    context = multiprocessing.get_context("spawn")  # a fork would copy the tokenizer's threads half alive
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (tokenizer, dtype))
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(_encode, _without_held_out(batch))))
            if len(waiting) == 2 * jobs:
                batch, ids = waiting.popleft()
                yield batch, ids.result()
        for batch, ids in waiting:
            yield batch, ids.result()
    except BrokenProcessPool as error:
        hint = "give the same command again with fewer --jobs: it continues"
        raise ResourceError("a worker process died: memory may have run out", hint) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _without_held_out(batch: list[Segment]) -> list[Segment]:
    return [segment for segment in batch if not segment.held_out]


def _start_worker(tokenizer: Path, dtype: str) -> None:
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main one ends the others
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _encoder = BatchEncoder(tokenizer, dtype)


def _exit_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _encode(batch: list[Segment]) -> bytes:
    assert _encoder is not None
    return _encoder.encode(batch)


MOST_WORDS = 1 << 17
"""Words remembered (about 20 MB); when there are more, remembering begins again."""
_MORE_THAN_A_SPACE = re.compile(r"\s | \s")
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")


class WordCache:
    """Encodes as its tokenizer does, to the bytes of the ids."""

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        self.tokenizer, self.dtype = tokenizer, dtype
        self.known: dict[str, bytes] = {}  # word → ids of a space and the word

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return the ids of each text; errors as in `Tokenizer.encode_batch`."""
        if long := [i for i, text in enumerate(texts) if len(text) > LONG]:
            found = self.encode(["" if len(text) > LONG else text for text in texts])
            for i in long:
                found[i] = self._long(texts[i])
            return found
        if self.tokenizer.kind != "byte-bpe":
            return self._tokenized(texts)
        words = [self._words(text) for text in texts]
        if len(self.known) > MOST_WORDS:
            self.known = {}
        if new := list(set(chain.from_iterable(words)) - self.known.keys()):
            self.known |= zip(new, self._tokenized([f" {word}" for word in new]), strict=True)
        known, firsts = self.known, self._tokenized([some[0] for some in words])  # no space before these
        return [first + b"".join([known[w] for w in some[1:]]) for first, some in zip(firsts, words, strict=True)]

    def _long(self, text: str) -> bytes:
        """Return the ids of a long text, encoded in parts at bounded memory."""
        if self.tokenizer.kind == "byte-bpe" and len(pieces := split_text(text, LONG // 2)) > 1:
            return b"".join(ids for piece in pieces for ids in self.encode([piece]))
        return b"".join(np.array(part.ids, self.dtype).tobytes() for part in self.tokenizer.parts(text))

    def _words(self, text: str) -> list[str]:
        """Split a text at single spaces between other characters."""
        return (_BETWEEN_WORDS.split if _MORE_THAN_A_SPACE.search(text) else _at_spaces)(text)

    def _tokenized(self, texts: Sequence[str]) -> list[bytes]:
        return [np.array(ids, self.dtype).tobytes() for ids in self.tokenizer.encode_batch(texts)]


def _at_spaces(text: str) -> list[str]:
    return text.split(" ")

"""The files of a text, and how they are divided among processes; what is in them is read by `stream.py`."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

from glassformer.errors import DataError, UsageError

STRETCH = 1 << 13
"""Bytes of a plain file after which it is cut, at the next beginning of a line."""
FEW = 8
"""Stretches in a small part of a file."""
KINDS = (".txt", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class Source:
    """A file of text.

    Args:
        path: where it lies. name: what it is called in the folder that was named. size: in bytes, as it lies there.
        changed: when, in nanoseconds.
    """

    path: Path
    name: str
    size: int
    changed: int

    @staticmethod
    def at(path: Path, name: str) -> Source:
        """The file that is there now."""
        facts = path.stat()
        return Source(path, name, facts.st_size, facts.st_mtime_ns)

    def now(self) -> Source | None:
        """The same file as it is by now; None where it is gone."""
        return Source.at(self.path, self.name) if self.path.is_file() else None

    @contextmanager
    def opened(self) -> Iterator[BufferedIOBase]:
        """Its bytes, unpacked; a DataError says that they cannot be."""
        try:
            with gzip.open(self.path) if self.zipped else self.path.open("rb") as file:
                yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            told = f"{self.path}: the gzip file is damaged ({error})"
            raise DataError(told, "fetch or pack it again") from error

    @property
    def zipped(self) -> bool:
        """Whether it has to be read from its beginning."""
        return self.path.suffix == ".gz"

    @property
    def plain(self) -> bool:
        """Whether it is text as it stands, and no table."""
        return Path(self.name.removesuffix(".gz")).suffix not in KINDS[1:]


@dataclass(frozen=True)
class Part:
    """Of a source the units that begin in the bytes start to stop; both are multiples of STRETCH, or the end."""

    source: Source
    start: int
    stop: int

    def in_small_parts(self) -> Iterator[Part]:
        """The same in parts of a few stretches; a zipped file, which is read from its beginning, stays whole."""
        step = self.source.size if self.source.zipped else FEW * STRETCH
        for start in range(self.start, self.stop, step):
            yield Part(self.source, start, min(start + step, self.stop))


def find_sources(named: Iterable[str | Path]) -> list[Source]:
    """The files that are named, and those of text in folders that are, in the order of their names.

    Raises:
        UsageError: one is not there, or is of a kind that is not read. DataError: a folder holds none.
    """
    found: list[Source] = []
    for path in map(Path, named):
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and _kind(p) in KINDS)
            if not files:
                told = f"{path}: there is no file of text in this folder"
                raise DataError(told, f"it reads {', '.join(KINDS)} and .gz of them")
            found += [Source.at(file, file.relative_to(path).as_posix()) for file in files]
        elif not path.is_file():
            raise UsageError(f"{path}: there is no such file", "name a file or a folder of text")
        elif path.suffix in (".parquet", ".zst", ".zip"):
            told = f"{path}: {path.suffix} is not read"
            raise UsageError(told, 'write its texts as .jsonl, one {"text": …} a line; .gz of that is read')
        else:
            found.append(Source.at(path, path.name))
    return found


def cut_into_blocks(sources: Iterable[Source], size: int) -> list[list[Part]]:
    """The sources in blocks of about `size` bytes, the work of one process at a time; a zipped file stays whole."""
    blocks: list[list[Part]] = [[]]
    size = room = max(1, size // STRETCH) * STRETCH
    for source in sources:
        start = 0
        while start < source.size:
            stop = start + math.ceil(room / STRETCH) * STRETCH
            stop = source.size if source.zipped else min(source.size, stop)
            blocks[-1].append(Part(source, start, stop))
            room -= stop - start
            start = stop
            if room <= 0:
                blocks.append([])
                room = size
    return [block for block in blocks if block]


def is_held_out(seed: int, source: Source, place: int, share: float) -> bool:
    """Whether a unit belongs to the validation part: a matter of seed, name and place, so that it can be streamed."""
    digest = hashlib.blake2b(f"{seed}\0{source.name}\0{place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix

"""Reads compressed files and tar archives without trusting them.

Nothing is extracted to a path that an archive names: regular files are returned as bytes, in one pass, with limits on
each and on all of them. `download.py` finds and fetches archives.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from glassformer.errors import DataError

MAX_FILE_BYTES = 16 << 20
MAX_MEMBER_BYTES = 64 << 20
MAX_TOTAL_BYTES = 1 << 30
MAX_MEMBERS = 1_000_000


def read_members(
    path: Path, *, max_member_bytes: int = MAX_MEMBER_BYTES, max_total_bytes: int = MAX_TOTAL_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Yield each regular file of a .tar or .tar.gz as (name, content), in the archive's order.

    Links, devices and folders are skipped.

    Args:
        path: the archive.
        max_member_bytes: maximum size of one file.
        max_total_bytes: maximum size of the unpacked archive, headers included.

    Raises:
        DataError: the archive is damaged, truncated, or larger than allowed, or names a path outside it ("../x").
    """
    try:
        with open(path, "rb") as file:
            stream = _capped(file, path, max_total_bytes)
            yield from _regular_files(stream, path, max_member_bytes)
            # Read to the end, where gzip keeps its checksum.
            while stream.read(1 << 16):
                pass
        if stream.last.strip(b"\0"):
            raise _damaged(f"{path}: this archive is truncated")
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(f"{path}: this archive cannot be read ({error})") from error


def read_bytes(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file, unpacked if its first bytes are those of gzip.

    Raises:
        DataError: it is missing, damaged or unpacks to more than `max_bytes`.
    """
    try:
        with open(path, "rb") as file:
            return _capped(file, path, max_bytes).read(max_bytes + 1)
    except OSError as error:
        raise _damaged(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise _damaged(f"{path}: this compressed file cannot be read ({error})") from error


def read_text(path: Path) -> tuple[str, str]:
    """Return the text of a file, unpacked by `read_bytes`, and the SHA-256 of its bytes.

    Raises:
        DataError: as `read_bytes`; also with the first line that is not UTF-8.
    """
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8"), hashlib.sha256(raw).hexdigest()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _damaged(f"{path}:{line}: this line is not UTF-8") from error


def check_published(path: Path, name: str, sha256: str) -> None:
    """Raise a DataError unless the unpacked file has the hash of the published one."""
    if hashlib.sha256(read_bytes(path)).hexdigest() != sha256:
        raise DataError(f"{path}: this is not {name} as published", "delete it and fetch it again")


def _damaged(message: str) -> DataError:
    return DataError(message, "delete the file and fetch it again")


def _capped(file: io.BufferedIOBase, path: Path, cap: int) -> _Capped:
    start = file.read(2)
    file.seek(0)
    return _Capped(gzip.GzipFile(fileobj=file) if start == b"\x1f\x8b" else file, path, cap)


class _Capped(io.BufferedIOBase):
    """A stream that raises a DataError beyond `cap` bytes, so that a decompression bomb fills no memory."""

    def __init__(self, stream: io.BufferedIOBase, path: Path, cap: int) -> None:
        self._stream, self._path, self._cap = stream, path, cap
        self._n_read = 0
        # A tar ends in blocks of zeros; without them it is truncated.
        self.last = b""

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(size)
        self._n_read += len(data)
        if self._n_read > self._cap:
            raise _damaged(f"{self._path}: unpacks to more than {self._cap:,} bytes")
        self.last = (self.last + data)[-512:] if len(data) < 512 else data[-512:]
        return data


def _regular_files(stream: _Capped, path: Path, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for n_members, member in enumerate(tar):
            tar.members = []  # pyright: ignore (tarfile keeps a hundred thousand of them, for nothing)
            if n_members == MAX_MEMBERS:
                raise _damaged(f"{path}: more than {MAX_MEMBERS:,} files in this archive")
            if not member.isreg():
                continue
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or set(member.name) & set("\\:\0"):
                raise _damaged(f'{path}: a file of this archive has the name "{member.name}", which points outside it')
            if member.size > max_bytes:
                raise _damaged(f"{path}: {name} has {member.size:,} bytes; at most {max_bytes:,} are read")
            content = tar.extractfile(member)
            data = b"" if content is None else content.read()
            if len(data) != member.size:
                raise _damaged(f"{path}: {name} is truncated")
            yield str(name), data

"""Reading compressed files and tar archives without trusting them.

Nothing is ever extracted by a name an archive chose: members are handed to the caller as bytes, one after the
other in a single pass, regular files only, under a cap on each and on the whole. Finding and fetching archives
is in `download.py`.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from glassformer.errors import DataError

MAX_MEMBER_BYTES = 64 << 20
MAX_TOTAL_BYTES = 1 << 30
MAX_MEMBERS = 1_000_000


def read_members(
    path: Path, *, max_member_bytes: int = MAX_MEMBER_BYTES, max_total_bytes: int = MAX_TOTAL_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Each regular file of a .tar or .tar.gz as (name, content), in the archive's order.

    Links, devices and folders are passed over. A name is a plain relative path: one that is absolute or climbs
    out of the archive ("../x") ends the reading, since an honest archive has none.

    Args:
        path: the archive.
        max_member_bytes: most bytes of one file.
        max_total_bytes: most bytes of the unpacked archive, headers included.

    Raises:
        DataError: the archive is damaged, cut short, hostile or larger than allowed.
    """
    try:
        with open(path, "rb") as file:
            stream = _capped(file, path, max_total_bytes)
            yield from _regular_files(stream, path, max_member_bytes)
            stream.drain()  # to the end, where gzip keeps its checksum
        if stream.last.strip(b"\0"):
            raise DataError(f"{path}: this archive is cut short.", hint=_HINT)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: this archive cannot be read ({error}).", hint=_HINT) from error


def read_bytes(path: Path, *, max_bytes: int = MAX_TOTAL_BYTES) -> bytes:
    """The content of a file, unpacked if it is gzip (told by its first bytes, not by its name).

    Raises:
        DataError: it is missing, damaged or unpacks to more than `max_bytes`.
    """
    try:
        with open(path, "rb") as file:
            return _capped(file, path, max_bytes).read(max_bytes + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.", hint=_HINT) from error
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: this compressed file cannot be read ({error}).", hint=_HINT) from error


_HINT = "The file is damaged or not what it should be: delete it and fetch it again."


def _capped(file: io.BufferedIOBase, path: Path, cap: int) -> _Capped:
    start = file.read(2)
    file.seek(0)
    return _Capped(gzip.GzipFile(fileobj=file) if start == b"\x1f\x8b" else file, path, cap)


class _Capped(io.BufferedIOBase):
    """A stream that refuses to give more than `cap` bytes: a bomb bursts here, not in memory."""

    def __init__(self, stream: io.BufferedIOBase, path: Path, cap: int) -> None:
        self._stream, self._path, self._cap = stream, path, cap
        self._given = 0
        self.last = b""  # a tar ends in blocks of zeros: without them it was cut short

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(size)
        self._given += len(data)
        if self._given > self._cap:
            raise DataError(f"{self._path}: unpacks to more than {self._cap:,} bytes.", hint=_HINT)
        self.last = (self.last + data)[-512:] if len(data) < 512 else data[-512:]
        return data

    def drain(self) -> None:
        """Read what is left, for its checksum alone."""
        while self.read(1 << 16):
            pass


def _regular_files(stream: _Capped, path: Path, max_member_bytes: int) -> Iterator[tuple[str, bytes]]:
    n_members = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            tar.members = []  # pyright: ignore (tarfile keeps a hundred thousand of them, for nothing)
            n_members += 1
            if n_members > MAX_MEMBERS:
                raise DataError(f"{path}: more than {MAX_MEMBERS:,} files in this archive.", hint=_HINT)
            if not member.isreg():
                continue
            name = _checked_name(member.name, path)
            if member.size > max_member_bytes:
                raise DataError(
                    f"{path}: {name} has {member.size:,} bytes; at most {max_member_bytes:,} are read.",
                    hint=_HINT,
                )
            content = tar.extractfile(member)
            data = b"" if content is None else content.read()
            if len(data) != member.size:
                raise DataError(f"{path}: {name} is cut short.", hint=_HINT)
            yield name, data


def _checked_name(name: str, path: Path) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in name or "\0" in name:
        raise DataError(
            f'{path}: a file of this archive has the name "{name}", which points outside it.', hint=_HINT
        )
    return str(pure)

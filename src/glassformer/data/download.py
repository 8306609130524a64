"""Finds data sets on this machine, downloads missing ones, and reads archives without trusting them.

Nothing is extracted to a path that an archive names: regular files are returned as bytes, in one pass, with limits on
each and on all of them. `download.py` finds and fetches archives.

A download goes to `<name>.part`, is continued with a Range request, and is renamed once its content is verified.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import logging
import os
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from glassformer.config import DataConfig
from glassformer.errors import DataError, ResourceError, UsageError

MAX_FILE_BYTES = 16 << 20
MAX_MEMBER_BYTES = 64 << 20
MAX_TOTAL_BYTES = 1 << 30
MAX_MEMBERS = 1_000_000
_own_cache: ContextVar[Path | None] = ContextVar("_own_cache", default=None)


def read_members(
    path: Path, *, max_member_bytes: int = MAX_MEMBER_BYTES, max_total_bytes: int = MAX_TOTAL_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Yield each regular file of a .tar or .tar.gz as (name, content), in the archive's order.

    Links, devices and folders are skipped. The limits are of one file, and of the unpacked archive, headers included.

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


logger = logging.getLogger(__name__)

TIMEOUT_S = 30
WAITS_S = (1.0, 3.0, 9.0)  # before the second, third and fourth attempt
CHUNK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """A file to download.

    `check` raises a DataError if the file at a path has the wrong content.
    """

    url: str
    name: str
    max_bytes: int
    check: Callable[[Path], None]


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Let this thread use a folder of its own as the cache within the block."""
    token = _own_cache.set(folder)
    try:
        yield
    finally:
        _own_cache.reset(token)


def cache_dir(own: bool = True) -> Path:
    """Return the folder of downloads and encoded corpora: GLASSFORMER_CACHE, or the platform's cache folder.

    Where this thread has a folder of its own (`cache_in`), it is that one, unless not `own`.

    Raises:
        UsageError: there is none.
    """
    if own and (folder := _own_cache.get()):
        return folder
    if chosen := os.environ.get("GLASSFORMER_CACHE"):
        return Path(chosen).expanduser()
    variable, place = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Caches")}.get(
        sys.platform, ("XDG_CACHE_HOME", ".cache")
    )
    try:
        return Path(os.environ.get(variable) or Path.home() / place) / "glassformer"
    except RuntimeError as error:
        raise UsageError("this user has no home folder to keep a cache in", "name one: GLASSFORMER_CACHE") from error


def find(data: DataConfig, name: str, probe: Callable[[Path], Path | None], wanted: str) -> Path | None:
    """Look for a data set in `data_dir`, GLASSFORMER_DATA and the cache, in this order.

    In `data_dir` it may lie in a folder `name/`. `probe` returns the path to read if the given folder holds the data
    set, else None. None is returned if it must be downloaded.

    Raises:
        DataError: `data_dir` was given, but the data set is not there.
    """
    if data.data_dir is not None:
        data_dir = Path(data.data_dir).expanduser()
        if found := probe(data_dir) or probe(data_dir / name):
            return found
        raise DataError(
            f"{data_dir}: there is no {wanted} here, nor in {data_dir / name}",
            hint="check --data-dir, or leave it out to use GLASSFORMER_DATA, the cache or a download",
        )
    shared = os.environ.get("GLASSFORMER_DATA")
    folders = [*([Path(shared).expanduser()] if shared else []), cache_dir() / "data"]
    return next((found for folder in folders if (found := probe(folder / name) or probe(folder))), None)


def fetch(remote: Remote, folder: Path, *, waits: tuple[float, ...] = WAITS_S) -> Path:
    """Download a file, continuing an earlier attempt, and return its path.

    `waits` are the seconds to wait before each further attempt.

    Raises:
        DataError: the address cannot be reached, or the content is wrong.
        ResourceError: the disk is full or cannot be written.
    """
    target = folder / remote.name
    if target.exists():
        return target
    part = folder / f"{remote.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logger.info(f"downloading {remote.url} to {folder}")
        resumed = part.exists() and part.stat().st_size > 0
        _download(remote, part, waits)
        try:
            _check(remote, part)
        except DataError:
            if not resumed:
                raise
            _download(remote, part, waits)  # a part from another day may not fit its rest: once more, whole
            _check(remote, part)
        os.replace(part, target)
    except OSError as error:
        hint = "free some space, or set GLASSFORMER_CACHE to another folder"
        raise ResourceError(f"{folder}: cannot write here ({error.strerror or error})", hint) from error
    return target


def _check(remote: Remote, part: Path) -> None:
    """Check the content, and remove it if it is wrong, so that it is not continued."""
    try:
        remote.check(part)
    except DataError:
        part.unlink()
        raise


def _download(remote: Remote, part: Path, waits: tuple[float, ...]) -> None:
    """Complete `part`, in one attempt more than there are waits."""
    problem: Exception | None = None
    for wait in (0.0, *waits):
        time.sleep(wait)
        try:
            if _attempt(remote, part):
                return
            problem = None
        except urllib.error.HTTPError as error:
            problem = error
            error.close()  # it holds the connection
            if error.code == 416:  # the part is longer than the file: it belongs to something else
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code not in (408, 429):
                break
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = error
    reason = getattr(problem, "reason", None) or problem or "the connection keeps breaking off"
    hint = f"fetch it yourself and save it as {part.parent / remote.name}, or give its folder with --data-dir"
    raise DataError(f"{remote.url} could not be downloaded: {reason}", hint) from problem


def _attempt(remote: Remote, part: Path) -> bool:
    """Send one request; return whether the file is complete, False if the connection broke."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "glassformer", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(remote.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        continues = response.status == 206
        if continues and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            return False
        size = have if continues else 0
        length = response.headers.get("Content-Length", "")
        total = size + int(length) if length.isdigit() else None
        with open(part, "ab" if continues else "wb") as file:
            while chunk := _next(response):
                size += len(chunk)
                if size > remote.max_bytes:
                    file.close()
                    part.unlink()
                    raise DataError(f"{remote.url}: expected at most {remote.max_bytes:,} bytes, got more")
                file.write(chunk)
    return total is None or size == total


def _next(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes; on a broken connection those received, so that none is fetched twice."""
    try:
        return response.read1(CHUNK)
    except http.client.IncompleteRead as error:
        return error.partial

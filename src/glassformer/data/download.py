"""Where a data set may lie, and fetching it when it lies nowhere: resumable, checked, offline-friendly.

A download goes into `<name>.part`, is continued with a Range request, and gets its name only once its content
has been checked. What the content should be is told by the data sets themselves.
"""

from __future__ import annotations

import http.client
import logging
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.errors import DataError, ResourceError

logger = logging.getLogger(__name__)

TIMEOUT_S = 30
WAITS_S = (1.0, 3.0, 9.0)  # before the second, third and fourth attempt
CHUNK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """A file at its canonical address.

    Args:
        url: where it is.
        name: what it is called here.
        max_bytes: more than this is refused.
        check: raises DataError when the file at a path is not what it should be.
    """

    url: str
    name: str
    max_bytes: int
    check: Callable[[Path], None]


def cache_dir() -> Path:
    """Where downloads and encoded corpora are kept: GLASSFORMER_CACHE, or the platform's place for caches."""
    if chosen := os.environ.get("GLASSFORMER_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "glassformer"


def find(data: DataConfig, name: str, probe: Callable[[Path], Path | None], wanted: str) -> Path | None:
    """Look for a data set in `data_dir`, GLASSFORMER_DATA and the cache, in this order.

    Args:
        data: its `data_dir` is either the place itself or the parent that holds `name/`.
        name: folder of the data set in such a parent, such as "imdb".
        probe: gives the path to read when its argument holds the data set, else None.
        wanted: what is looked for, in words, for the message.

    Returns:
        What `probe` found first, or None: it has to be fetched.

    Raises:
        DataError: `data_dir` was given, but the data set is not there.
    """
    if data.data_dir is not None:
        given = Path(data.data_dir).expanduser()
        if found := probe(given) or probe(given / name):
            return found
        raise DataError(
            f"{given}: there is no {wanted} here, nor in {given / name}.",
            hint="Check --data-dir, or leave it out to use GLASSFORMER_DATA, the cache or a download.",
        )
    shared = os.environ.get("GLASSFORMER_DATA")
    places = [*([Path(shared).expanduser()] if shared else []), cache_dir() / "data"]
    return next((found for place in places if (found := probe(place / name) or probe(place))), None)


def fetch(remote: Remote, folder: Path, *, waits: tuple[float, ...] = WAITS_S) -> Path:
    """The path of the checked file, downloaded into `folder`, going on where an earlier attempt stopped.

    Args:
        remote: what to fetch.
        folder: where to; created if absent.
        waits: seconds to wait before each further attempt.

    Raises:
        DataError: the address cannot be reached, or what it gives is not what it should be.
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
        hint = "Free some space, or set GLASSFORMER_CACHE to another folder."
        raise ResourceError(f"{folder}: cannot write here ({error.strerror or error}).", hint) from error
    return target


def _check(remote: Remote, part: Path) -> None:
    """Nothing that is not what it should be stays to be continued."""
    try:
        remote.check(part)
    except DataError:
        part.unlink()
        raise


def _download(remote: Remote, part: Path, waits: tuple[float, ...]) -> None:
    """Bring `part` to full length, in as many attempts as there are waits, and one."""
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
    hint = f"Fetch it by other means and save it as {part.parent / remote.name}, or give its folder with --data-dir."
    raise DataError(f"{remote.url} could not be downloaded: {reason}.", hint) from problem


def _attempt(remote: Remote, part: Path) -> bool:
    """One request; True when the file is complete, False when the connection broke off early."""
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
                    most = f"the {remote.max_bytes:,} bytes it should have at most"
                    raise DataError(f"{remote.url}: more than {most}.")
                file.write(chunk)
    return total is None or size == total


def _next(response: http.client.HTTPResponse) -> bytes:
    """The next bytes; on a broken connection, those that still came, so that none is fetched twice."""
    try:
        return response.read1(CHUNK)
    except http.client.IncompleteRead as error:
        return error.partial

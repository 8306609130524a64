"""Files and folders that are either wholly there or not there at all, whenever the process dies.

Everything is written beside its destination, forced to the disk and only then renamed. What the files
mean, and whether they are still what was written, is `sealed_folder.py`'s business.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassformer.errors import ResourceError

_counter = itertools.count()


def _unused(path: Path) -> Path:
    """Return an unused name in the same folder, since a rename must not cross file systems."""
    return path.with_name(f".tmp-{path.name}-{os.getpid()}-{next(_counter)}")


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield an unused name, of which nothing is left after the block, which renames it."""
    temporary = _unused(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        sync(path.parent)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
        hint = "free some disk space, then try again" if full else "choose a folder that can be written"
        raise ResourceError(f"{path} cannot be written: {error.strerror or error}", hint) from error
    finally:
        _remove(temporary)


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part.

    Raises:
        ResourceError: the disk is full, or cannot be written; the old content stands.
    """
    with _temporary(path) as temporary:
        write_durably(temporary, [data])
        os.replace(temporary, path)


def atomic_write_text(path: Path, text: str) -> None:
    """Write the text in UTF-8 as `atomic_write_bytes`, with its line ends unchanged.

    A path may hold bytes that are not UTF-8. They are written as escapes, which JSON reads again as the same path.
    """
    atomic_write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(finite(value), ensure_ascii=False, indent=2, allow_nan=False)
    atomic_write_text(path, text + "\n")


def json_line(value: Any, default: Callable[[Any], str] | None = None) -> str:
    """Return a value as JSON on one line, whatever a program that reads it takes for the end of a line.

    U+0085, U+2028 and U+2029, at which Python's `str.splitlines` and JavaScript cut, are escaped. NaN and infinity
    become null; what JSON lacks is written as `default` gives it.
    """
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=default)
    return re.sub("[\u0085\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def finite(value: Any) -> Any:
    """Return a value for JSON, with None for every NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal, at bounded memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_durably(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a new file and force it to the disk; returns its SHA-256.

    Not atomic: for files inside a folder that is not yet in place.
    """
    digest = hashlib.sha256()
    with open(path, "xb") as file:  # permissions by umask
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
    sync(path)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot and need not
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write_folder_atomically(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `folder` at the end of the block and is removed if the block fails.

    Raises:
        ResourceError: there is such a folder by then, or the disk cannot be written; nothing is left behind.
    """
    with _temporary(folder) as temporary:
        temporary.mkdir()
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        os.replace(temporary, folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder and what is in it, if it is there; a symbolic link is removed, not followed.

    It is renamed first: a folder half removed must not look like one that is whole.
    """
    if os.path.lexists(folder):
        os.replace(folder, doomed := _unused(folder))
        sync(folder.parent)
        _remove(doomed)


def remove_leftovers(parent: Path) -> None:
    """Remove the temporary files and folders that processes which died left in `parent`."""
    for path in parent.glob(".tmp-*"):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder with what is in it, as far as that can be."""
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

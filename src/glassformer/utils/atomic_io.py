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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glassformer.errors import ResourceError

_counter = itertools.count()


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield an unused name in the same folder, since a rename must not cross file systems; nothing is left of it."""
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}-{next(_counter)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        sync(path.parent)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
        hint = "free some disk space, then try again" if full else "choose a folder that can be written"
        raise ResourceError(f"{path} cannot be written: {error.strerror or error}", hint) from error
    finally:
        with suppress(OSError):
            remove_folder(temporary) if temporary.is_dir() else remove(temporary)


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part.

    Raises:
        ResourceError: the disk is full, or cannot be written; the old content stands.
    """
    atomic_write_chunks(path, [data])


def atomic_write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write chunks as `atomic_write_bytes`, at bounded memory."""
    with _temporary(path) as temporary:
        write_durably(temporary, chunks)
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


def json_line(value: Any) -> str:
    """Return a value as JSON on one line, whatever a program that reads it takes for the end of a line.

    U+0085, U+2028 and U+2029, at which Python's `str.splitlines` and JavaScript cut, are escaped. NaN and infinity
    become null.
    """
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False)
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


def remove(path: Path) -> None:
    """Remove a file or an empty folder."""
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@contextmanager
def write_folder_atomically(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `folder` at the end of the block and is removed if the block fails.

    With `replace`, an earlier folder is removed at that moment. Otherwise an earlier one, or one that another process
    finished first, stays, and this block's files are dropped.

    Raises:
        ResourceError: the disk is full, or cannot be written; nothing is left behind.
    """
    with _temporary(folder) as temporary:
        temporary.mkdir()
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        if replace:
            remove_folder(folder)
        try:
            os.replace(temporary, folder)
        except OSError:
            if replace or not folder.is_dir():
                raise


def remove_folder(folder: Path) -> None:
    """Remove a folder and what is in it, if it is there; a symbolic link is removed, not followed."""
    if folder.is_symlink():
        remove(folder)
    elif folder.is_dir():
        if not folder.name.startswith("."):  # a folder half removed must not look like one that is whole
            doomed = folder.with_name(f".tmp-{folder.name}-{os.getpid()}-{next(_counter)}")
            os.replace(folder, doomed)
            sync(folder.parent)
            folder = doomed
        for child in sorted(folder.iterdir()):
            remove_folder(child) if child.is_dir() else remove(child)
        remove(folder)


def remove_leftovers(parent: Path, name: str = "") -> None:
    """Remove what processes that died left in `parent`: temporary files (of `name`), folders alike."""
    for path in sorted(parent.glob(f".tmp-{name}*")):
        with suppress(OSError):
            remove_folder(path) if path.is_dir() else remove(path)

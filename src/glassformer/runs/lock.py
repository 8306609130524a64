"""The lock of a run folder: one process trains into it. The kernel holds it, so it ends with the process that took it.

It is a lock on the file `.lock`, not the file's presence: what a killed process leaves locks nothing, and neither does
the copy of a folder. A forked process does not hold it. Reading a run takes no lock.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from glassformer.errors import ResourceError, UsageError

logger = logging.getLogger(__name__)

LOCK = ".lock"
"""The file in a run folder that is locked; removed when the lock is given back."""
UNSUPPORTED = {errno.ENOLCK, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems without locks."""
WAIT_SECONDS = 0.2
"""How long a lock is waited for: who asks whether it is held takes it for an instant."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder within the block; the folder is made if need be, and removed if it is empty then.

    Raises:
        UsageError: another process, or another thread of this one, trains into it.
        ResourceError: it cannot be written.
    """
    path, made = folder / LOCK, [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(path, timeout=WAIT_SECONDS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"{path} should be a regular file", "remove it, or name another folder")
        lock.acquire()
    except Timeout:
        message = f"another process is training into {folder}"
        raise UsageError(message, "wait until it ends, or name another folder") from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            message = f"{folder} cannot be written: {error.strerror or error}"
            raise ResourceError(message, "choose a folder that can be written") from error
        logger.warning(f"{folder} is on a file system without locks: start one training at a time into it")
    try:
        yield
    finally:
        if lock.is_locked:  # not in a forked process
            with suppress(OSError):
                path.unlink()  # while it is held: who waits for it then locks a new file
            lock.release()
            with suppress(OSError):  # not empty: something was written
                for each in made:
                    each.rmdir()


def is_locked(folder: Path) -> bool | None:
    """Return whether a process trains into a folder; None where that cannot be known, as on a disk without locks.

    A lock is taken for an instant where there is none, which a training that begins just then waits for.
    """
    if not (folder / LOCK).is_file():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return None

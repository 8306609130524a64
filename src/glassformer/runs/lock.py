"""The lock of a run folder: one process trains into it. The kernel holds it, so it ends with the process that took it.

It is a lock on the file `.lock` (`flock`; `msvcrt` on Windows), not the file's presence: what a killed process leaves
locks nothing, and neither does the copy of a folder. Reading a run takes no lock.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassformer.errors import ResourceError, UsageError

if os.name == "nt":
    import msvcrt
else:
    import fcntl

logger = logging.getLogger(__name__)

LOCK = ".lock"
"""The file in a run folder that is locked; removed when the lock is given back."""
BUSY = {errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK, errno.EDEADLK}
"""Errors of a lock that another process holds."""
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems without locks."""
WINDOWS_BYTE = 1 << 30
"""The byte that is locked on Windows, where a locked byte cannot be read: beyond the end of the file."""
TRIES = 100
N_WAITS, WAIT_SECONDS = 4, 0.02
"""How often a lock is tried and how long is waited in between: who asks whether it is held takes it for an instant."""

_held = set[int]()
"""The descriptors of the locks that this process holds."""


@contextmanager
def lock_folder(folder: Path, work: str = "training into") -> Iterator[None]:
    """Hold the lock of a folder within the block; the folder is made if need be, and removed if it is empty then.

    `work` is what is done in it, as the error says it.

    Raises:
        UsageError: another process, or another thread of this one, trains into it.
        ResourceError: it cannot be written.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    descriptor = _acquire(folder, work)
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # a forked process has closed its copy, and removes nothing of its parent's
            _held.discard(descriptor)
            _release(folder / LOCK, descriptor)
            with suppress(OSError):  # not empty: something was written
                for path in made:
                    path.rmdir()


def is_locked(folder: Path) -> bool | None:
    """Return whether a process trains into a folder; None where that cannot be known, as on a disk without locks.

    A lock is taken for an instant where there is none, which a training that begins just then waits for.
    """
    try:
        descriptor = _open(folder / LOCK, create=False)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        _lock_at_once(descriptor, shared=True)
    except OSError as error:
        return True if error.errno in BUSY else None
    finally:
        os.close(descriptor)
    return False


def _acquire(folder: Path, work: str) -> int:
    """Return the descriptor of the locked file."""
    path = folder / LOCK
    for _ in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = _open(path)
        except FileNotFoundError:  # another process has just removed the folder that it had made
            continue
        except OSError as error:
            message = f"{folder} cannot be written: {error.strerror or error}"
            raise ResourceError(message, "choose a folder that can be written") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{path} should be a regular file", "remove it, or name another folder")
            if not _lock(descriptor, path, work) or _is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder has removed it: the next one locks a new file
    raise ResourceError(f"{path} cannot be locked: it is removed again and again", "name another folder")


def _open(path: Path, create: bool = True) -> int:
    # A link is not followed, and a pipe not waited for. A program started from here does not get the descriptor.
    access = ("O_RDWR", "O_CREAT") if create else ("O_RDONLY",)
    names = *access, "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOINHERIT", "O_BINARY"
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o666)


def _lock(descriptor: int, path: Path, work: str) -> bool:
    """Lock an open file; return False where the file system has no locks.

    Raises:
        UsageError: it is locked.
    """
    try:
        for waits_left in reversed(range(N_WAITS)):
            try:
                _lock_at_once(descriptor, shared=False)
                break
            except OSError as error:
                if error.errno not in BUSY or not waits_left:
                    raise
                time.sleep(WAIT_SECONDS)
    except OSError as error:
        if error.errno in BUSY:
            message = f"another process is {work} {path.parent}"
            raise UsageError(message, "wait until it ends, or name another folder") from None
        if error.errno not in UNSUPPORTED:
            raise
        logger.warning(f"{path.parent} is on a file system without locks: start one training at a time into it")
        return False
    return True


def _lock_at_once(descriptor: int, shared: bool) -> None:
    """Lock an open file or raise OSError; Windows has no shared locks here."""
    if os.name == "nt":
        os.lseek(descriptor, WINDOWS_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _release(path: Path, descriptor: int) -> None:
    """Remove the file while it is locked, so that no other process holds a lock on a file without a name."""
    if os.name == "nt":
        os.close(descriptor)  # an open file cannot be removed there
    with suppress(OSError):
        path.unlink()
    if os.name != "nt":
        os.close(descriptor)


def _close_all() -> None:
    """Close the locks in a forked process: they end with the process that took them, not with its last child."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)

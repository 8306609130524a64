"""A folder that is written whole or not at all."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassformer.errors import ResourceError
from glassformer.utils.atomic_io import remove_folder, sync

_counter = itertools.count()


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield the path of a folder to make, which becomes `out` at the end of the block.

    If the block fails, nothing is left of it. What earlier processes left that were killed meanwhile is removed first.

    Args:
        out: a path where there is nothing, or an empty folder; a link to one is followed.

    Raises:
        ResourceError: the disk cannot be written.
    """
    out = Path(os.path.realpath(out))
    try:
        _remove_leftovers(out)
        temporary = out.with_name(f".tmp-{out.name}-{os.getpid()}-new{next(_counter)}")
        temporary.mkdir(parents=True)
    except OSError as error:
        raise _cannot_write(out, error) from error
    try:
        yield temporary / out.name
        if out.is_dir():
            out.rmdir()  # it is empty, or this fails
        os.replace(temporary / out.name, out)
        sync(out.parent)
    except OSError as error:
        raise _cannot_write(out, error) from error
    finally:
        with suppress(OSError):
            remove_folder(temporary)


def _remove_leftovers(out: Path) -> None:
    """Remove folders that processes which are gone began for `out`."""
    for path in out.parent.glob(".tmp-*"):
        process, _, count = path.name.removeprefix(f".tmp-{out.name}-").partition("-")
        is_temporary = process.isdecimal() and len(process) < 10 and count.removeprefix("new").isdecimal()
        if is_temporary and not _is_running(int(process)) and path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                remove_folder(path)


def _is_running(process: int) -> bool:
    """Return True if there is such a process, or if that cannot be known."""
    if os.name == "nt" or process == os.getpid():
        return True  # Windows has no signal that changes nothing
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _cannot_write(out: Path, error: OSError) -> ResourceError:
    return ResourceError(f"{out} cannot be written: {error.strerror or error}", "choose a folder that can be written")

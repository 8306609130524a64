"""A folder that is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassformer.utils.atomic_io import remove_folder, write_folder_atomically


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `out` at the end of the block; if that fails, nothing is left of it.

    What earlier processes left that were killed meanwhile is removed first.

    Args:
        out: a path where there is nothing, or an empty folder; a link to one is followed.

    Raises:
        ResourceError: the disk cannot be written.
    """
    out = Path(os.path.realpath(out))
    for path in out.parent.glob(".tmp-*") if os.name != "nt" else ():  # which has no signal that changes nothing
        process, _, count = path.name.removeprefix(f".tmp-{out.name}-").partition("-")
        is_temporary = process.isdecimal() and len(process) < 10 and count.isdecimal()
        if is_temporary and path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                try:
                    os.kill(int(process), 0)
                except ProcessLookupError:
                    remove_folder(path)
    with write_folder_atomically(out) as building:
        yield building
        if out.is_dir():
            out.rmdir()  # it is empty, or this fails

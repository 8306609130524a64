"""A disk at which a process dies after so many operations, as a killed one does: nothing follows, not even tidying up.

With `torn`, the operation it dies in is half done; with `power_cut`, what was never forced to the disk is lost as well.
Or a disk that is full.
"""

import builtins
import errno
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.utils import atomic_io

NEW_FILE = "xb"
"""The mode in which `atomic_io` opens what it writes."""


class Crash(BaseException):
    """The process is dead. Not an Exception: no code under test may survive it by catching errors."""


class Disk:
    """The operations of `atomic_io` that change a disk, put in place by `install`; `before` each may note or fail."""

    def install(self, patch: pytest.MonkeyPatch) -> None:
        mkdir, rename, sync = os.mkdir, os.replace, atomic_io.sync

        def put(module: Any, name: str, what: str, act: Callable[..., object]) -> None:
            def changed(path: Path, *more: Any) -> None:
                self.before(what, path, *more)
                act(path, *more)

            patch.setattr(module, name, changed)

        put(os, "mkdir", "mkdir", mkdir)
        put(os, "replace", "rename", rename)
        put(atomic_io, "sync", "sync", sync)
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: self.remove(path))
        patch.setattr(shutil, "rmtree", self.remove)
        patch.setattr(atomic_io, "open", self.open, raising=False)

    def before(self, what: str, path: Path, more: Any = None) -> None:
        """Called before "mkdir", "write" (with the data), "sync", "rename" (with the new path) and "remove"."""

    def open(self, path: Path, mode: str = "r") -> Any:
        return _Written(self, path) if mode == NEW_FILE else builtins.open(path, mode)

    def remove(self, path: Path) -> None:
        is_folder = path.is_dir() and not path.is_symlink()
        for child in sorted(path.iterdir()) if is_folder else ():
            self.remove(child)
        self.before("remove", path)
        os.rmdir(path) if is_folder else os.unlink(path)


class _Written(io.BytesIO):
    """A file that is written when it is closed."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__()
        self.disk, self.path = disk, path

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is None:
            self.disk.before("write", self.path, self.getvalue())
            with builtins.open(self.path, NEW_FILE) as file:
                file.write(self.getvalue())


class CrashingDisk(Disk):
    """Works for `alive` operations, then never again."""

    def __init__(self, alive: int, torn: bool = False, power_cut: bool = False) -> None:
        self.alive, self.torn, self.power_cut = alive, torn, power_cut
        self.crashed = False
        self.not_on_disk: list[Path] = []
        self.renamed: list[tuple[Path, Path]] = []

    def before(self, what: str, path: Path, more: Any = None) -> None:
        if self.alive == 0:
            if not self.crashed and self.torn and what == "write":
                path.write_bytes(more[: len(more) // 2])
            if not self.crashed and self.power_cut:
                self._lose_what_is_not_on_disk()
            self.crashed = True
            raise Crash
        self.alive -= 1
        if what == "write":
            self.not_on_disk.append(path)
        if what == "sync":
            self.not_on_disk = [p for p in self.not_on_disk if p != path]
            self.renamed = [(old, new) for old, new in self.renamed if path not in (old.parent, new.parent)]
        if what == "rename" and not more.exists():
            self.renamed.append((path, more))

    def _lose_what_is_not_on_disk(self) -> None:
        for old, new in reversed(self.renamed):
            if new.exists() and not old.exists():
                new.rename(old)
        for path in self.not_on_disk:
            if path.exists():
                path.write_bytes(b"")


class FullDisk(Disk):
    """Writes half of a file that `no_room` is true of, and fails."""

    def __init__(self, no_room: Callable[[Path], bool]) -> None:
        self.no_room = no_room

    def before(self, what: str, path: Path, more: Any = None) -> None:
        if what == "write" and self.no_room(path):
            path.write_bytes(more[: len(more) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def every_crash(
    root: Path, prepare: Callable[[Path], object], act: Callable[[Path], object], **how: bool
) -> Iterator[tuple[Path, bool]]:
    """`act` on freshly prepared folders, dying after 0, 1, 2 … operations until it lives through.

    Args:
        root: where the folders are made.
        prepare: fills a folder.
        act: what dies in it.
        how: `torn` or `power_cut` of the disk.

    Yields:
        The folder as the dead process left it, and whether the act was completed.
    """
    for alive in itertools.count():
        folder = root / str(alive)
        folder.mkdir()
        prepare(folder)
        with pytest.MonkeyPatch.context() as patch:
            CrashingDisk(alive, **how).install(patch)
            try:
                act(folder)
                completed = True
            except Crash:
                completed = False
        yield folder, completed
        if completed:
            assert alive > 3, "so few operations cannot be durable"
            return

"""A disk at which a process dies after so many operations, as a killed one does: nothing follows, not even tidying up.

With `torn`, the operation it dies in is half done; with `power_cut`, what was never forced to the disk is lost as well.
Or a disk that is full.
"""

from __future__ import annotations

import builtins
import errno
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from glassformer.utils import atomic_io

NEW_FILE = "xb"
"""The mode in which `atomic_io` opens what it writes."""


class Crash(BaseException):
    """The process is dead. Not an Exception: no code under test may survive it by catching errors."""


class Disk:
    """The operations of `atomic_io` that change a disk, put in place by `install`; here they do what they always do."""

    def install(self, patch: pytest.MonkeyPatch) -> None:
        self._mkdir, self._rename = os.mkdir, os.replace
        self._sync = atomic_io.sync
        patch.setattr(atomic_io, "open", self._open, raising=False)
        patch.setattr(atomic_io, "sync", self.sync)
        patch.setattr(shutil, "rmtree", self.remove_tree)
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: self.remove(path))
        patch.setattr(os, "mkdir", self.mkdir)
        patch.setattr(os, "replace", self.rename)

    def _open(self, path: Path, mode: str = "r") -> Any:
        return _Written(partial(self.write, path)) if mode == NEW_FILE else builtins.open(path, mode)

    def write(self, path: Path, data: bytes) -> None:
        with builtins.open(path, NEW_FILE) as file:
            file.write(data)

    def mkdir(self, path: Path, *mode: int) -> None:
        self._mkdir(path, *mode)

    def sync(self, path: Path) -> None:
        self._sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._rename(old, new)

    def remove(self, path: Path) -> None:
        os.rmdir(path) if path.is_dir() and not path.is_symlink() else os.unlink(path)

    def remove_tree(self, path: Path) -> None:
        for child in sorted(path.iterdir()):
            self.remove_tree(child) if child.is_dir() and not child.is_symlink() else self.remove(child)
        self.remove(path)


class _Written(io.BytesIO):
    """A file that is written when it is closed."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write = write

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is None:
            self._write(self.getvalue())


class CrashingDisk(Disk):
    """Works for `alive` operations, then never again."""

    def __init__(self, alive: int, torn: bool = False, power_cut: bool = False) -> None:
        self.alive, self.torn, self.power_cut = alive, torn, power_cut
        self.crashed = False
        self.not_on_disk: list[Path] = []
        self.renamed: list[tuple[Path, Path]] = []

    def mkdir(self, path: Path, *mode: int) -> None:
        self._count()
        super().mkdir(path, *mode)

    def write(self, path: Path, data: bytes) -> None:
        if self.alive == 0 and self.torn and not self.crashed:
            super().write(path, data[: len(data) // 2])
        self._count()
        self.not_on_disk.append(path)
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self._count()
        self.not_on_disk = [p for p in self.not_on_disk if p != path]
        self.renamed = [(old, new) for old, new in self.renamed if path not in (old.parent, new.parent)]
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        if not new.exists():
            self.renamed.append((old, new))
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def _count(self) -> None:
        if self.alive == 0:
            if self.power_cut and not self.crashed:
                self._lose_what_is_not_on_disk()
            self.crashed = True
            raise Crash
        self.alive -= 1

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

    def write(self, path: Path, data: bytes) -> None:
        if self.no_room(path):
            super().write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(path, data)


class WatchedDisk(Disk):
    """Writes down what is done to which path: "write", "sync" or "rename" (to it)."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Path]] = []

    def write(self, path: Path, data: bytes) -> None:
        self.log.append(("write", path))
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self.log.append(("sync", path))
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self.log.append(("rename", new))
        super().rename(old, new)


def every_crash(
    root: Path,
    prepare: Callable[[Path], object],
    act: Callable[[Path], object],
    torn: bool = False,
    power_cut: bool = False,
) -> Iterator[tuple[Path, bool]]:
    """`act` on freshly prepared folders, dying after 0, 1, 2 … operations until it lives through.

    Yields:
        The folder as the dead process left it, and whether the act was completed.
    """
    for alive in itertools.count():
        folder = root / str(alive)
        folder.mkdir()
        prepare(folder)
        with pytest.MonkeyPatch.context() as patch:
            CrashingDisk(alive, torn, power_cut).install(patch)
            try:
                act(folder)
                completed = True
            except Crash:
                completed = False
        yield folder, completed
        if completed:
            assert alive > 3, "so few operations cannot be durable"
            return

"""A file system that dies after so many operations, as a killed process does: nothing follows, not even
tidying up. With `torn`, the operation it dies in is half done; with `power_cut`, what was never forced to
the disk is lost as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from glassformer.utils import atomic_io


class Crash(BaseException):
    """The process is dead. Not an Exception: no code under test may survive it by catching errors."""


class CrashingFileSystem(atomic_io.FileSystem):
    """Works for `alive` operations, then never again."""

    def __init__(self, alive: int, torn: bool = False, power_cut: bool = False) -> None:
        self.alive, self.torn, self.power_cut = alive, torn, power_cut
        self.crashed = False
        self.not_on_disk: list[Path] = []
        self.renamed: list[tuple[Path, Path]] = []

    def make_folder(self, path: Path) -> None:
        self._count()
        super().make_folder(path)

    def write(self, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
        data = b"".join(chunks)
        if self.alive == 0 and self.torn and not self.crashed:
            super().write(path, [data[: len(data) // 2]])
        self._count()
        self.not_on_disk.append(path)
        super().write(path, [data])

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

    def link(self, old: Path, new: Path) -> None:
        self._count()
        super().link(old, new)

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
            patch.setattr(atomic_io, "fs", CrashingFileSystem(alive, torn, power_cut))
            try:
                act(folder)
                completed = True
            except Crash:
                completed = False
        yield folder, completed
        if completed:
            assert alive > 3, "so few operations cannot be durable"
            return

"""Finds the files of text in a folder and its subfolders, and names those that are not read.

A suffix is compared without its case. A link to a folder is followed, but no folder is read twice, so that links in a
circle end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.data.sources import suffix_of

N_NAMED = 3


@dataclass(frozen=True)
class FolderContent:
    """What is in a folder.

    Args:
        texts: files to read, sorted by their path in the folder.
        others: paths in the folder, sorted, of what is not read: files of other kinds, dangling links, links to
            folders that are read already, and folders that cannot be opened.
    """

    texts: list[Path]
    others: list[str]


def read_folder(folder: Path, suffixes: Sequence[str]) -> FolderContent:
    """Return the files with these suffixes, or with .gz behind them, in a folder and its subfolders."""
    texts, others = list[Path](), list[str]()
    for path in _walk(folder):
        if path.is_file() and suffix_of(path) in suffixes:
            texts.append(path)
        else:
            others.append(path.relative_to(folder).as_posix())
    return FolderContent(sorted(texts, key=lambda path: path.relative_to(folder).as_posix()), sorted(others))


def not_read(names: Sequence[str]) -> str:
    """Return `3 other files not read (a.md, b.pdf, c/d.doc)`; empty if there are none."""
    if not names:
        return ""
    shown = ", ".join(names[:N_NAMED]) + (", …" if len(names) > N_NAMED else "")
    return f"{len(names):,} other file{'s' if len(names) > 1 else ''} not read ({shown})"


def not_read_record(names: Sequence[str]) -> dict[str, Any]:
    """Return the number of files that are not read and the first names, as JSON data."""
    return {"n": len(names), "names": list(names[:N_NAMED])}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder but is no folder, and links to folders that are not followed."""
    seen, links, unread, top = set[tuple[int, int]](), [folder], list[Path](), folder.resolve()
    while links:  # real folders before links to them, so that a file has its own name where it can
        root = links.pop(0)
        if root != folder and (_identity(root) in seen or top.is_relative_to(root.resolve())):
            yield root
            continue
        for path, names, files in os.walk(root, onerror=lambda error: unread.append(Path(error.filename))):
            here = Path(path)
            seen.add(_identity(here))
            linked = sorted(name for name in names if (here / name).is_symlink())
            links += [here / name for name in linked]
            names[:] = [name for name in names if name not in linked and _identity(here / name) not in seen]
            yield from (here / name for name in files)
    yield from (path for path in unread if path != folder)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino

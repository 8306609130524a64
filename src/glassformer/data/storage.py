"""Named arrays in a folder of the cache: written once, in a stream, then only mapped.

A folder appears under its final name complete or not at all, so any number of processes may ask for the same
one. What the arrays mean is in `corpus.py`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from glassformer.errors import ResourceError
from glassformer.utils.atomic_io import remove_leftovers, write_folder_atomically, write_json

Arrays = dict[str, np.ndarray]
FLUSH_BYTES = 1 << 20
ABOUT = "about.json"
STALE_SECONDS = 24 * 3600
"""An unfinished folder older than this was left by a process that died."""


class ArrayWriter:
    """Arrays that grow at the end, in files of a folder, or in memory when there is none.

    Args:
        folder: where `NAME.bin` is written, raw and little-endian; None keeps everything in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.closing = ExitStack()  # of the files
        self.files: dict[str, BinaryIO] = {}
        self.arrays: dict[str, tuple[str, int]] = {}  # dtype and elements of each

    def append(self, name: str, array: np.ndarray) -> None:
        """Add elements; an array keeps the dtype it began with."""
        if self.folder is None:
            self.files.setdefault(name, io.BytesIO())
        elif name not in self.files:
            path = self.folder / f"{name}.bin"
            self.files[name] = self.closing.enter_context(path.open("wb", FLUSH_BYTES))
        dtype, size = self.arrays.get(name, (array.dtype.str, 0))
        self.arrays[name] = dtype, size + len(array)
        self.files[name].write(array.tobytes())

    def in_memory(self) -> Arrays:
        """Return the arrays if there is no folder."""
        files = [(name, file) for name, file in self.files.items() if isinstance(file, io.BytesIO)]
        return {name: np.frombuffer(file.getbuffer(), self.arrays[name][0]) for name, file in files}


def cached_arrays(
    cache: Path | None, key: Callable[[], str], write: Callable[[ArrayWriter], dict[str, int]]
) -> tuple[Arrays, dict[str, int]]:
    """Return the arrays stored under `key`, made by `write` if they are missing.

    Args:
        cache: folder of all keys; None, or one that cannot be written to, means memory.
        key: names the contents, in a cache; must change when they would.
        write: fills a writer and returns counts to keep with the arrays.

    Returns:
        the arrays, memory-mapped and read-only (or in memory), and the counts.
    """
    if cache is not None:
        try:
            if _open(cache / key()) is None:
                _write_folder(cache / key(), write)
        except ResourceError:
            pass  # a full disk or a read-only home: training needs the arrays, not the cache
        if (found := _open(cache / key())) is not None:
            return found
    writer = ArrayWriter(None)
    counts = write(writer)
    return writer.in_memory(), counts


def _write_folder(final: Path, write: Callable[[ArrayWriter], dict[str, int]]) -> None:
    remove_leftovers(final.parent, older_than=STALE_SECONDS)
    # One that is there is damaged, or it would have been read.
    with write_folder_atomically(final, replace=final.exists()) as folder:
        writer = ArrayWriter(folder)
        with writer.closing:
            counts = write(writer)
        write_json(folder / ABOUT, {"arrays": writer.arrays, "counts": counts})


def _open(folder: Path) -> tuple[Arrays, dict[str, int]] | None:
    """Map a finished folder; None when it is missing or a file has not the size it should have."""
    arrays: Arrays = {}
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        for name, (dtype, size) in about["arrays"].items():
            path = folder / f"{name}.bin"
            if size == 0:  # an empty file cannot be mapped, and need not exist
                arrays[name] = np.zeros(0, dtype)
            elif path.stat().st_size != size * np.dtype(dtype).itemsize:
                return None
            else:
                arrays[name] = np.asarray(np.memmap(path, dtype=dtype, mode="r"))
        return arrays, about["counts"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None

"""Finds built-in data sets on this machine, and downloads missing ones; pooch compares each with its published hash."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from glassformer.config import DataConfig
from glassformer.data.diagnostics import open_source
from glassformer.errors import DataError

logger = logging.getLogger(__name__)


def cache_dir() -> Path:
    """Return the folder of downloads: GLASSFORMER_CACHE, or the platform's folder for caches."""
    chosen = os.environ.get("GLASSFORMER_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("glassformer", appauthor=False)


def find(data: DataConfig, name: str, patterns: Sequence[str]) -> list[Path]:
    """Return the files of a data set, the first in order for each pattern; none if it must be downloaded.

    They lie in `data_dir` or its folder `name`; without `data_dir` in that folder of GLASSFORMER_DATA or of the cache.

    Raises:
        DataError: `data_dir` was given, and a file is not there.
    """
    own = Path(data.data_dir).expanduser() if data.data_dir else None
    roots = [root for root in (os.environ.get("GLASSFORMER_DATA"), cache_dir() / "data") if root]
    for folder in (own, own / name) if own else [Path(root).expanduser() / name for root in roots]:
        files = [path for pattern in patterns if (path := min(folder.glob(pattern), default=None))]
        if len(files) == len(patterns):
            return files
    if own:
        hint = "check --data-dir, or leave it out to use GLASSFORMER_DATA, the cache or a download"
        raise DataError(f"{own}: there is no {', '.join(patterns)} here, nor in {own / name}", hint)
    return []


def fetch(url: str, name: str, known_hash: str) -> Path:
    """Download a file of the data set `name` into the cache, where a file of that hash is not there already.

    `known_hash` is a SHA-256, or that of another algorithm behind its name: "md5:…".

    Raises:
        DataError: the address cannot be reached, the content is another, or the cache cannot be written.
    """
    import pooch

    folder, file = cache_dir() / "data" / name, url.rpartition("/")[2]
    logger.info(f"downloading {url} to {folder}")
    pooch.get_logger().setLevel(logging.WARNING)
    downloader: Any = pooch.HTTPDownloader(timeout=30)
    files = pooch.create(folder, "", registry={file: known_hash}, urls={file: url}, retry_if_failed=3)
    try:
        return Path(files.fetch(file, downloader=downloader))
    except (OSError, ValueError) as error:  # of the network or the disk; of pooch about another hash
        hint = f"fetch it yourself and save it as {folder / file}, or give its folder with --data-dir"
        raise DataError(f"{url} could not be downloaded: {error}", hint) from error


def note_differences(found: Mapping[str, str], published: Mapping[str, str]) -> list[str]:
    """Return a note on the files whose hash is not the published one; none where there is no such file."""
    other = [name for name, sha256 in found.items() if sha256 != published[name]]
    return [f"{', '.join(other)}: other than the published data set"] if other else []


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, unpacked where it is compressed; raise DataError if it is damaged."""
    try:
        with open_source(path) as file:
            return file.read().decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", "delete it and fetch it again") from error

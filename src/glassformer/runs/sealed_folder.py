"""A folder with a manifest of what is in it: written whole or not at all, and refused when a byte changed.

Neither file systems nor tensor formats notice a flipped bit; the manifest's SHA-256 sums do, and the
manifest carries its own. It guards against accidents, and holds no secret a forger would lack.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from glassformer.errors import CheckpointError
from glassformer.utils.atomic_io import link_or_copy, parse_json, sha256_file, write_durably, write_folder_atomically

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
FORMAT_VERSION = 1

Files = Mapping[str, Iterable[bytes | memoryview]]
"""Names and contents, the latter in pieces so that nothing is copied whole."""
T = TypeVar("T")


def write_sealed_folder(folder: Path, kind: str, files: Files, *, replace: bool = False) -> None:
    """Write files, then a manifest of their sizes and sums, and only then put the folder in its place.

    Args:
        folder: path of the folder.
        kind: content, such as "glassformer checkpoint"; reading requires the same.
        files: names and contents.
        replace: as in `write_folder_atomically`.

    Raises:
        ResourceError: the disk is full, or cannot be written; nothing is left behind.
    """
    with write_folder_atomically(folder, replace=replace) as temporary:
        _fill(temporary, kind, files, {})


def update_sealed_folder(folder: Path, kind: str, files: Files) -> None:
    """Replace some files of a sealed folder, whole or not at all, without writing the others again.

    The new folder holds the others under a second name (a hard link; a copy where the disk has none), and their
    entries of the manifest as they are: what is damaged in them stays refused.

    Raises:
        CheckpointError: the folder is missing, another kind, or its manifest is damaged.
        ResourceError: the disk is full, or cannot be written; the folder stands as it was.
    """
    entries = {name: entry for name, entry in _read_manifest(folder, kind).items() if name not in files}
    with write_folder_atomically(folder, replace=True) as temporary:
        for name in entries:
            link_or_copy(folder / name, temporary / name)
        _fill(temporary, kind, files, entries)


def _fill(folder: Path, kind: str, files: Files, entries: dict[str, dict[str, Any]]) -> None:
    """Write files, and the manifest of these and of the `entries` that are there already."""
    for name, chunks in files.items():
        size, sha256 = write_durably(folder / name, chunks)
        entries[name] = {"bytes": size, "sha256": sha256}
    versions = {"python": platform.python_version()} | package_versions("glassformer", "torch")
    body = {"kind": kind, "version": FORMAT_VERSION, "written_by": versions, "files": entries}
    write_durably(folder / MANIFEST, [_render(body)])


def read_sealed_folder(folder: Path, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
    """Read every file of a sealed folder, name to content: the very bytes whose checksums were compared.

    Raises:
        CheckpointError: the folder is missing, another kind, from a later version, not the bytes that were
            written, or holds others than `names`, if these are given; the message names the file.
    """

    def read_file(path: Path) -> tuple[bytes, str]:
        data = path.read_bytes()
        return data, hashlib.sha256(data).hexdigest()

    files = _compared(folder, kind, read_file)
    if names is not None and files.keys() != {*names}:
        present = ", ".join(files) or "nothing"
        raise CheckpointError(f"{folder} should hold {' and '.join(names)} alone, not {present}")
    return files


def check_sealed_folder(folder: Path, kind: str) -> None:
    """Raise the CheckpointError that `read_sealed_folder` would, without holding the files in memory."""
    _compared(folder, kind, lambda path: (None, sha256_file(path)))


def sealed_sha256(folder: Path, name: str) -> str | None:
    """Return a file's SHA-256 from the manifest, unchecked; None if it has none."""
    path = folder / MANIFEST
    try:
        sha256 = parse_json(_read_or_raise(path, Path.read_bytes), path)["files"][name]["sha256"]
    except (CheckpointError, KeyError, TypeError):
        return None
    return sha256 if isinstance(sha256, str) else None


def is_intact(folder: Path, kind: str) -> bool:
    """Return True if `read_sealed_folder` would return what was written."""
    try:
        check_sealed_folder(folder, kind)
    except CheckpointError:
        return False
    return True


def package_versions(*packages: str) -> dict[str, str]:
    """Return the version of each package; "unknown" for one that is not installed, such as a checkout on the path."""
    versions = dict.fromkeys(packages, "unknown")
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _compared(folder: Path, kind: str, read: Callable[[Path], tuple[T, str]]) -> dict[str, T]:
    """Return the result of `read` for every file after comparing its size and SHA-256 with the manifest's."""
    contents = {}
    for name, entry in _read_manifest(folder, kind).items():
        path, expected = folder / name, entry["bytes"]
        size = path.stat().st_size if path.is_file() else None
        if size != expected:
            problem = "is missing" if size is None else f"has {size} bytes"
            raise _damaged(path, f"it {problem}, {expected} were written")
        contents[name], sha256 = _read_or_raise(path, read)
        if sha256 != entry["sha256"]:
            raise _damaged(path, "its SHA-256 is not the one written")
    return contents


def _read_manifest(folder: Path, kind: str) -> dict[str, dict[str, Any]]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}")
    if _read_or_raise(path, Path.stat).st_size > MAX_MANIFEST_BYTES:
        raise CheckpointError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes, as none should be")
    data = _read_or_raise(path, Path.read_bytes)
    manifest = parse_json(data, path)
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        raise CheckpointError(f"{folder} is not a {kind}")
    if (version := manifest.get("version")) != FORMAT_VERSION:
        message = f"{folder} has format version {version}, not {FORMAT_VERSION}"
        raise CheckpointError(message, "install a glassformer that knows it")
    manifest.pop("sha256", None)
    entries = manifest.get("files")
    # The one rendering there is: any other byte, even a blank, is damage.
    if _render(manifest) != data or not isinstance(entries, dict):
        raise CheckpointError(f"{path} is damaged", "restore the folder from a copy")
    for name, entry in entries.items():
        # Damage cannot come this far, only a manifest that someone made to point elsewhere.
        if not isinstance(entry, dict) or entry.keys() != {"bytes", "sha256"} or Path(name).name != name:
            raise CheckpointError(f"{path} lists {name!r} in a form that was never written")
    return entries


def _render(body: Mapping[str, Any]) -> bytes:
    """Return the manifest's bytes: sorted JSON of the body and of the body's own SHA-256."""
    return _json({**body, "sha256": hashlib.sha256(_json(body)).hexdigest()})


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode("ascii")


def _read_or_raise(path: Path, read: Callable[[Path], T]) -> T:
    """Return the result of `read`; raise CheckpointError if the file cannot be read."""
    try:
        return read(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}", "restore it from a copy")

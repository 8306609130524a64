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
from typing import Any, TypedDict, TypeVar

from glassformer.errors import CheckpointError
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import link_or_copy, write_durably, write_folder_atomically
from glassformer.utils.safe_read import LIMITS

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_NAME = 255
"""Most characters of a file's name."""
FORMAT_VERSION = 1
IN_FOLDERS = {"1_Pooling/config.json"}
"""Files of a folder inside of a sealed one; there are no others. This one is of sentence-transformers."""

Files = Mapping[str, Iterable[bytes | memoryview]]
"""Names and contents, the latter in pieces so that nothing is copied whole."""
T = TypeVar("T")


class Entry(TypedDict):
    """What the manifest says of a file."""

    bytes: int
    sha256: str


def write_sealed_folder(folder: Path, kind: str, files: Files, *, replace: bool = False) -> None:
    """Write files, then a manifest of their sizes and sums, and only then put the folder in its place.

    `kind` is the content, such as "glassformer checkpoint"; reading requires the same.

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
    entries = {name: entry for name, entry in read_manifest(folder, kind).items() if name not in files}
    with write_folder_atomically(folder, replace=True) as temporary:
        for name in entries:
            _make_room(temporary / name)
            link_or_copy(folder / name, temporary / name)
        _fill(temporary, kind, files, entries)


def _fill(folder: Path, kind: str, files: Files, entries: dict[str, Entry]) -> None:
    """Write files, and the manifest of these and of the `entries` that are there already."""
    for name, chunks in files.items():
        _make_room(folder / name)
        size, sha256 = write_durably(folder / name, chunks)
        entries[name] = {"bytes": size, "sha256": sha256}
    versions = {"python": platform.python_version()} | package_versions("glassformer", "torch")
    body = {"kind": kind, "version": FORMAT_VERSION, "written_by": versions, "files": entries}
    write_durably(folder / MANIFEST, [_render(body)])


def read_sealed_folder(
    folder: Path, kind: str, names: Collection[str] | None = None, max_bytes: int = LIMITS["weights"]
) -> dict[str, bytes]:
    """Read every file of a sealed folder, name to content: the very bytes whose checksums were compared.

    `names` are the files that it should hold, and no others; None for any. `max_bytes` is what they may have together.

    Raises:
        CheckpointError: the folder is missing, another kind, from a later version, too large, not the bytes that were
            written, or holds others than `names`; the message names the file. Nothing is read before all are listed.
    """
    entries = read_manifest(folder, kind)
    if names is not None and entries.keys() != {*names}:
        present = ", ".join(entries) or "nothing"
        raise CheckpointError(f"{folder} should hold {' and '.join(names)} alone, not {present}")
    if (n_bytes := sum(entry["bytes"] for entry in entries.values())) > max_bytes:
        raise CheckpointError(f"{folder} should have at most {max_bytes:,} bytes, and has {n_bytes:,}")
    return {name: read_sealed_file(folder, name, entry) for name, entry in entries.items()}


def read_sealed_file(folder: Path, name: str, entry: Entry) -> bytes:
    """Read one file of a sealed folder, whose entry `read_manifest` returned; errors as in `read_sealed_folder`."""

    def read(path: Path) -> tuple[bytes, str]:
        data = safe_read.read_bytes(path, max_bytes_of(name))
        return data, hashlib.sha256(data).hexdigest()

    return _compared(folder, name, entry, read)


def check_sealed_folder(folder: Path, kind: str) -> None:
    """Raise the CheckpointError that `read_sealed_folder` would, without holding the files in memory."""
    for name, entry in read_manifest(folder, kind).items():
        check_sealed_file(folder, name, entry)


def check_sealed_file(folder: Path, name: str, entry: Entry) -> None:
    """Raise the CheckpointError that `read_sealed_file` would, without holding the file in memory."""
    _compared(folder, name, entry, lambda path: (None, safe_read.sha256_regular(path)))


def max_bytes_of(name: str) -> int:
    """Return the largest size of a file of this name."""
    kinds = {".json": "record", ".md": "text"}
    return LIMITS["tokenizer" if "tokenizer" in name else kinds.get(Path(name).suffix, "weights")]


def sealed_sha256(folder: Path, name: str) -> str | None:
    """Return a file's SHA-256 from the manifest, unchecked; None if it has none."""
    try:
        sha256 = safe_read.read_json(folder / MANIFEST, MAX_MANIFEST_BYTES)["files"][name]["sha256"]
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


def read_manifest(folder: Path, kind: str) -> dict[str, Entry]:
    """Return what the manifest says of each file, by name; nothing else is read.

    Raises:
        CheckpointError: as `read_sealed_folder`, also for a name or a size that was never written.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}")
    data = safe_read.read_bytes(path, MAX_MANIFEST_BYTES)
    manifest = safe_read.parse_json(data, path)
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
        if not _is_name(name) or not _is_entry(entry):
            raise CheckpointError(f"{path} lists {name[:80]!r} in a form that was never written")
        if entry["bytes"] > (limit := max_bytes_of(name)):
            raise CheckpointError(f"{folder / name} should have at most {limit:,} bytes, and has {entry['bytes']:,}")
    return entries


def _is_name(name: str) -> bool:
    """Return whether it is the name of a file of the folder, or of `IN_FOLDERS`."""
    one = Path(name).name == name or name in IN_FOLDERS
    return one and len(name.encode("utf-8")) <= MAX_NAME and name.isprintable() and name != MANIFEST


def _make_room(path: Path) -> None:
    """Make the folder of a file of `IN_FOLDERS`."""
    path.parent.mkdir(exist_ok=True)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"bytes", "sha256"}:
        return False
    return type(entry["bytes"]) is int and entry["bytes"] >= 0 and isinstance(entry["sha256"], str)


def _compared(folder: Path, name: str, entry: Entry, read: Callable[[Path], tuple[T, str]]) -> T:
    """Return the result of `read` for a file after comparing its size and SHA-256 with the manifest's."""
    path, expected = folder / name, entry["bytes"]
    size = path.stat().st_size if path.is_file() else None
    if size != expected:
        problem = "is missing" if size is None else f"has {size} bytes"
        raise _damaged(path, f"it {problem}, {expected} were written")
    content, sha256 = read(path)
    if sha256 != entry["sha256"]:
        raise _damaged(path, "its SHA-256 is not the one written")
    return content


def _render(body: Mapping[str, Any]) -> bytes:
    """Return the manifest's bytes: sorted JSON of the body and of the body's own SHA-256."""
    return _json({**body, "sha256": hashlib.sha256(_json(body)).hexdigest()})


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode("ascii")


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}", "restore it from a copy")

"""A folder with a manifest of what is in it: written whole or not at all, and refused when a byte changed.

Neither file systems nor tensor formats notice a flipped bit; the manifest's SHA-256 sums do. It guards against
accidents, and holds no secret a forger would lack: what reads the files checks them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from glassformer.errors import CheckpointError
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import write_durably, write_folder_atomically
from glassformer.utils.safe_read import LIMITS

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
Files = Mapping[str, Iterable[bytes | memoryview]]
"""Names and contents, the latter in pieces so that nothing is copied whole."""
Name = Annotated[str, Meta(pattern=r"^(1_Pooling/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")]
"""Of a file in the folder; only sentence-transformers has a folder inside."""


@dataclass(frozen=True)
class Entry:
    """What the manifest says of a file."""

    bytes: Annotated[int, Meta(ge=0)]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`; `kind` is what the folder holds, such as "glassformer checkpoint"."""

    kind: str
    files: dict[Name, Entry]

    def written(self) -> bytes:
        """Return the content of the file, of which any other byte is damage."""
        return json.dumps(asdict(self), indent=2).encode()


def write_sealed_folder(folder: Path, kind: str, files: Files) -> None:
    """Write files, then a manifest of their sizes and sums, and only then put the folder in its place.

    An earlier one is replaced.

    Raises:
        ResourceError: the disk is full, or cannot be written; nothing is left behind.
    """
    with write_folder_atomically(folder, replace=True) as temporary:
        manifest = Manifest(kind, {})
        for name, chunks in files.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            manifest.files[name] = Entry(*write_durably(temporary / name, chunks))
        write_durably(temporary / MANIFEST, [manifest.written()])


def read_manifest(folder: Path, kind: str) -> dict[str, Entry]:
    """Return what the manifest says of each file, by name; nothing else is read.

    Raises:
        CheckpointError: it is missing, damaged, or of another kind.
    """
    path = folder / MANIFEST
    data = safe_read.read_bytes(path, MAX_MANIFEST_BYTES)
    manifest = safe_read.dataclass_from_json(Manifest, safe_read.parse_json(data, path), path)
    if data != manifest.written():
        raise CheckpointError(f"{path} is damaged: it is not what was written", "restore it from a copy")
    if manifest.kind != kind:
        raise CheckpointError(f"{folder} is not a {kind}, and holds a {manifest.kind[:40]}")
    return manifest.files


def read_sealed_folder(
    folder: Path, kind: str, names: Collection[str], max_bytes: int = LIMITS["weights"]
) -> dict[str, bytes]:
    """Read a sealed folder of these files, name to content: the very bytes whose sums were compared.

    `max_bytes` is what they may have together.

    Raises:
        CheckpointError: the folder is missing, of another kind, too large, not the bytes that were written, or holds
            others than `names`; the message names the file. Nothing is read before all are listed.
    """
    entries = read_manifest(folder, kind)
    if entries.keys() != {*names}:
        message = f"{folder} should hold {' and '.join(names)} alone, not {', '.join(entries) or 'nothing'}"
        raise CheckpointError(message)
    if (n_bytes := sum(entry.bytes for entry in entries.values())) > max_bytes:
        raise CheckpointError(f"{folder} should have at most {max_bytes:,} bytes, and has {n_bytes:,}")
    return {name: read_sealed_file(folder / name, entry) for name, entry in entries.items()}


def read_sealed_file(path: Path, entry: Entry) -> bytes:
    """Read a file of a sealed folder, whose entry `read_manifest` returned; errors as in `read_sealed_folder`."""
    data = safe_read.read_bytes(path, min(entry.bytes, _limit(path)))
    _compare(path, hashlib.sha256(data).hexdigest(), entry)
    return data


def check_sealed_file(path: Path, entry: Entry) -> None:
    """Raise the CheckpointError that `read_sealed_file` would, without holding the file in memory."""
    _compare(path, safe_read.sha256_regular(path, min(entry.bytes, _limit(path))), entry)


def check_sealed_folder(folder: Path, kind: str) -> None:
    """Raise the CheckpointError that `read_sealed_folder` would, without holding the files in memory."""
    for name, entry in read_manifest(folder, kind).items():
        check_sealed_file(folder / name, entry)


def is_intact(folder: Path, kind: str) -> bool:
    """Return True if the files of a sealed folder are what was written."""
    try:
        check_sealed_folder(folder, kind)
    except CheckpointError:
        return False
    return True


def sealed_sha256(folder: Path, name: str) -> str | None:
    """Return a file's SHA-256 from the manifest, unchecked; None if it has none."""
    with suppress(CheckpointError, KeyError, TypeError):
        return str(safe_read.read_json(folder / MANIFEST, MAX_MANIFEST_BYTES)["files"][name]["sha256"])
    return None


def package_versions(*packages: str) -> dict[str, str]:
    """Return the version of each package; "unknown" for one that is not installed, such as a checkout on the path."""
    versions = dict.fromkeys(packages, "unknown")
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _limit(path: Path) -> int:
    """Return the largest size of a file of this name."""
    kinds = {".json": "record", ".md": "text"}
    return LIMITS["tokenizer" if "tokenizer" in path.name else kinds.get(path.suffix, "weights")]


def _compare(path: Path, sha256: str, entry: Entry) -> None:
    if sha256 != entry.sha256:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the one written", "restore it from a copy")

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
class Manifest:
    """`manifest.json`: what the folder holds, such as "glassformer checkpoint", and the SHA-256 of each file."""

    kind: str
    files: dict[Name, str]

    def written(self) -> bytes:
        """Return the content of the file, of which any other byte is damage."""
        return json.dumps(asdict(self), indent=2).encode()


def write_sealed_folder(folder: Path, kind: str, files: Files) -> None:
    """Write files and a manifest of their sums, and only then put the folder in its place; an earlier one is replaced.

    Raises:
        ResourceError: the disk is full, or cannot be written; nothing is left behind.
    """
    with write_folder_atomically(folder, replace=True) as temporary:
        for name in files:
            (temporary / name).parent.mkdir(exist_ok=True)
        sums = {name: write_durably(temporary / name, chunks) for name, chunks in files.items()}
        write_durably(temporary / MANIFEST, [Manifest(kind, sums).written()])


def read_manifest(folder: Path, kind: str) -> dict[str, str]:
    """Return the SHA-256 of each file by name, as the manifest says; nothing else is read.

    Raises:
        CheckpointError: it is missing, damaged, or of another kind.
    """
    path = folder / MANIFEST
    data = safe_read.read_bytes(path, MAX_MANIFEST_BYTES)
    manifest = safe_read.parse_json(data, path, kind=Manifest)
    _compare(path, data, manifest.written())
    if manifest.kind != kind:
        raise CheckpointError(f"{folder} is not a {kind}, and holds a {manifest.kind[:40]}")
    return manifest.files


def read_sealed_folder(folder: Path, kind: str, names: Collection[str]) -> dict[str, bytes]:
    """Read a sealed folder of these files, name to content: the very bytes whose sums were compared.

    Raises:
        CheckpointError: the folder is missing, of another kind, not the bytes that were written, or holds others than
            `names`; the message names the file.
    """
    sums = read_manifest(folder, kind)
    if sums.keys() != {*names}:
        message = f"{folder} should hold {' and '.join(names)} alone, not {', '.join(sums) or 'nothing'}"
        raise CheckpointError(message)
    return {name: read_sealed_file(folder / name, sha256) for name, sha256 in sums.items()}


def read_sealed_file(path: Path, sha256: str) -> bytes:
    """Read a file of a sealed folder, whose sum `read_manifest` returned; raise a CheckpointError if it has another."""
    data = safe_read.read_bytes(path, _limit(path))
    _compare(path, hashlib.sha256(data).hexdigest(), sha256)
    return data


def check_sealed_file(path: Path, sha256: str) -> None:
    """Raise the CheckpointError that `read_sealed_file` would, without holding the file in memory."""
    _compare(path, safe_read.sha256_regular(path, _limit(path)), sha256)


def check_sealed_folder(folder: Path, kind: str) -> None:
    """Raise the CheckpointError that `read_sealed_folder` would, without holding the files in memory."""
    for name, sha256 in read_manifest(folder, kind).items():
        check_sealed_file(folder / name, sha256)


def is_intact(folder: Path, kind: str) -> bool:
    """Return True if the files of a sealed folder are what was written."""
    try:
        check_sealed_folder(folder, kind)
    except CheckpointError:
        return False
    return True


def _limit(path: Path) -> int:
    """Return the largest size of a file of this name."""
    return LIMITS["tokenizer" if path.suffix in (".json", ".md") else "weights"]


def _compare(path: Path, found: object, written: object) -> None:
    if found != written:
        raise CheckpointError(f"{path} is damaged: it is not what was written", "restore it from a copy")


def package_versions(*packages: str) -> dict[str, str]:
    """Return the version of each package; "unknown" for one that is not installed, such as a checkout on the path."""
    versions = dict.fromkeys(packages, "unknown")
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions

"""A folder with a manifest of what is in it: written whole or not at all, and refused when a byte changed.

Neither file systems nor tensor formats notice a flipped bit; the manifest's SHA-256 sums do. It guards against
accidents, and holds no secret a forger would lack: what reads the files checks them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from glassformer.errors import CheckpointError
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import remove_folder, write_durably, write_folder_atomically
from glassformer.utils.safe_read import LIMITS

MANIFEST = "manifest.json"
Files = Mapping[str, Iterable[bytes | memoryview]]
"""Names and contents, the latter in pieces so that nothing is copied whole."""
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")]
"""Of a file in the folder."""


@dataclass(frozen=True)
class SealedFile:
    """What a manifest says of a file, which is read only if it has this size."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`: what the folder holds, such as "glassformer checkpoint", and of which files."""

    kind: str
    files: dict[Name, SealedFile]

    def written(self) -> bytes:
        """Return the content of the file, of which any other byte is damage."""
        return json.dumps(asdict(self), indent=2).encode()


def write_sealed_folder(folder: Path, kind: str, files: Files) -> None:
    """Write files and a manifest of their sums, and only then put the folder in its place; an earlier one is replaced.

    Raises:
        ResourceError: the disk is full, or cannot be written; nothing is left behind.
    """
    with write_folder_atomically(folder) as temporary:
        seal(temporary, kind, write_files(temporary, files))
        remove_folder(folder)


def write_files(folder: Path, files: Files) -> dict[Name, SealedFile]:
    """Write files into a folder that is in no place yet; return what a manifest says of them."""
    sums = {name: write_durably(folder / name, chunks) for name, chunks in files.items()}
    return {name: SealedFile((folder / name).stat().st_size, sha256) for name, sha256 in sums.items()}


def seal(folder: Path, kind: str, files: dict[Name, SealedFile]) -> None:
    """Write the manifest of the files of a folder."""
    write_durably(folder / MANIFEST, [Manifest(kind, files).written()])


def read_manifest(folder: Path, kind: str, names: Collection[str] = ()) -> dict[Name, SealedFile]:
    """Return what the manifest says of each file, by name; nothing else is read.

    Raises:
        CheckpointError: it is missing, damaged, of another kind, or of other files than `names`, where these are given.
    """
    data = safe_read.read_bytes(path := folder / MANIFEST, LIMITS["settings"])
    manifest = safe_read.from_json(Manifest, data, path)
    _compare(path, data, manifest.written())
    if manifest.kind != kind:
        raise CheckpointError(f"{folder} is not a {kind}, and holds a {manifest.kind[:40]}")
    if names and (odd := sorted(manifest.files.keys() ^ {*names})):
        raise CheckpointError(f"{folder} should {'hold' if odd[0] in names else 'not hold'} {odd[0]}")
    return manifest.files


def read_sealed_file(path: Path, file: SealedFile) -> bytes:
    """Read a file of a sealed folder; raise a CheckpointError if it is not what `read_manifest` returned of it."""
    limit = LIMITS["tokenizer" if path.suffix in (".json", ".md") else "weights"]
    data = safe_read.read_bytes(path, min(file.bytes, limit))
    _compare(path, SealedFile(len(data), hashlib.sha256(data).hexdigest()), file)
    return data


def _compare(path: Path, found: object, written: object) -> None:
    if found != written:
        raise CheckpointError(f"{path} is damaged: it is not what was written", "restore it from a copy")


def is_intact(folder: Path, kind: str) -> bool:
    """Return True if the files of a sealed folder are what was written."""
    try:
        for name, file in read_manifest(folder, kind).items():
            read_sealed_file(folder / name, file)
    except CheckpointError:
        return False
    return True

"""What a manifest lists is read only where it is what was written, and lies in the folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.helpers.for_each import for_each

from glassformer.errors import CheckpointError
from glassformer.runs.sealed_folder import is_intact, read_manifest, read_sealed_file, write_sealed_folder

KIND, NAMES = "a kind", ("state.json", "empty")


def save(folder: Path) -> Path:
    write_sealed_folder(folder, KIND, {"state.json": [b"{", memoryview(b"}")], "empty": []})
    return folder


def read(folder: Path, kind: str = KIND) -> dict[str, bytes]:
    sealed = read_manifest(folder, kind, NAMES)
    return {name: read_sealed_file(folder / name, file) for name, file in sealed.items()}


def refuse(folder: Path, pattern: str | None = None) -> None:
    with pytest.raises(CheckpointError, match=pattern):
        read(folder)
    assert not is_intact(folder, KIND)


def test_round_trip_of_one_kind(tmp_path: Path) -> None:
    """Files that are not listed do not matter."""
    (save(tmp_path / "f") / ".DS_Store").write_bytes(b"x")
    assert read(tmp_path / "f") == {"state.json": b"{}", "empty": b""} and is_intact(tmp_path / "f", KIND)
    with pytest.raises(CheckpointError, match="is not a different kind, and holds a a kind"):
        read(tmp_path / "f", "different kind")


def test_a_file_that_grew_is_not_summed_and_a_folder_is_no_file(tmp_path: Path) -> None:
    """As one of many bytes that takes no place on the disk."""
    os.truncate(save(tmp_path / "f") / "state.json", 1 << 40)
    refuse(tmp_path / "f", "at most 2 bytes")
    (save(tmp_path / "g") / "empty").unlink()
    (tmp_path / "g" / "empty").mkdir()
    refuse(tmp_path / "g", "is a folder")


@for_each(
    "change",
    [
        {"files": None},
        {"files": {"state.json": "0" * 64, "empty": ""}},
        {"files": {"state.json": {"bytes": 2, "sha256": "0" * 64}, "empty": {"bytes": -1, "sha256": ""}}},
    ],
)
def test_other_manifests_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = save(tmp_path / "f") / "manifest.json"
    path.write_bytes(json.dumps(json.loads(path.read_text("utf-8")) | change).encode())
    refuse(path.parent)

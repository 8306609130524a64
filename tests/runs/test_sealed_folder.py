"""What a manifest lists is read only where it is what was written, and lies in the folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.runs.sealed_folder import is_intact, read_manifest, read_sealed_file, write_sealed_folder
from glassformer.utils.safe_read import LIMITS

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


def test_round_trip(tmp_path: Path) -> None:
    assert read(save(tmp_path / "f")) == {"state.json": b"{}", "empty": b""}
    assert is_intact(tmp_path / "f", KIND)


def test_a_file_that_grew_is_not_summed(tmp_path: Path) -> None:
    """As one of many bytes that takes no place on the disk."""
    os.truncate(save(tmp_path / "f") / "state.json", 1 << 40)
    refuse(tmp_path / "f", "at most 2 bytes")


def test_files_that_are_not_listed_do_not_matter(tmp_path: Path) -> None:
    (save(tmp_path / "f") / ".DS_Store").write_bytes(b"x")
    assert is_intact(tmp_path / "f", KIND)


def test_another_kind_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a different kind, and holds a a kind"):
        read(save(tmp_path / "f"), "different kind")


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (save(tmp_path / "f") / "empty").unlink()
    (tmp_path / "f" / "empty").mkdir()
    refuse(tmp_path / "f", "is a folder")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "another"},
        {"files": None},
        {"files": []},
        {"files": {"../secret": "0" * 64}},
        {"files": {"state.json": []}},
        {"files": {"state.json": "0" * 64, "empty": ""}},
        {"files": {"state.json": {"bytes": 2, "sha256": "0" * 64}, "empty": {"bytes": -1, "sha256": ""}}},
    ],
    ids=str,
)
def test_hostile_manifests_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = save(tmp_path / "f")
    manifest = json.loads((path / "manifest.json").read_text("utf-8"))
    (path / "manifest.json").write_text(json.dumps(manifest | change), "utf-8")
    refuse(path)


@pytest.mark.parametrize("content", [b"[]", b"1", b"[" * LIMITS["settings"] * 2, b"[" * 100_000])
def test_manifests_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path / "f")
    (path / "manifest.json").write_bytes(content)
    refuse(path)

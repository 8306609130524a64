"""What a manifest lists is read only where it is what was written, and lies in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.runs import sealed_folder
from glassformer.runs.sealed_folder import check_sealed_folder, read_sealed_folder, write_sealed_folder

KIND, NAMES = "a kind", ("state.json", "empty")


def save(folder: Path) -> Path:
    write_sealed_folder(folder, KIND, {"state.json": [b"{", memoryview(b"}")], "empty": []})
    return folder


def refuse(folder: Path, pattern: str | None = None) -> None:
    for load in (lambda: read_sealed_folder(folder, KIND, NAMES), lambda: check_sealed_folder(folder, KIND)):
        with pytest.raises(CheckpointError, match=pattern):
            load()


def test_round_trip(tmp_path: Path) -> None:
    assert read_sealed_folder(save(tmp_path / "f"), KIND, NAMES) == {"state.json": b"{}", "empty": b""}
    check_sealed_folder(tmp_path / "f", KIND)


def test_files_that_are_not_listed_do_not_matter(tmp_path: Path) -> None:
    (save(tmp_path / "f") / ".DS_Store").write_bytes(b"x")
    check_sealed_folder(tmp_path / "f", KIND)


def test_another_kind_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a different kind, and holds a a kind"):
        read_sealed_folder(save(tmp_path / "f"), "different kind", NAMES)


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
    ],
    ids=str,
)
def test_hostile_manifests_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = save(tmp_path / "f")
    manifest = json.loads((path / "manifest.json").read_text("utf-8"))
    (path / "manifest.json").write_text(json.dumps(manifest | change), "utf-8")
    refuse(path)


@pytest.mark.parametrize("content", [b"[]", b"1", b"[" * sealed_folder.MAX_MANIFEST_BYTES * 2, b"[" * 100_000])
def test_manifests_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path / "f")
    (path / "manifest.json").write_bytes(content)
    refuse(path)

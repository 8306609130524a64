"""A checkpoint that is not byte for byte what was written is never loaded, and never silently passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import CheckpointError
from glassformer.runs.model_folder import latest_checkpoint, load_checkpoint, save_checkpoint


def save(folder: Path, step: int, keep: int = 3) -> Path:
    tensors = {"model:weight": torch.arange(12.0).view(3, 4), "rng:cpu": torch.arange(5, dtype=torch.uint8)}
    return save_checkpoint(folder, step, tensors, {"step": step}, keep=keep)


def test_any_byte_of_any_file_flipped_or_cut_is_detected(tmp_path: Path) -> None:
    tensors = {"w": torch.arange(4.0)}
    path = save_checkpoint(tmp_path, 1, tensors, {"step": 1}, keep=1)
    n = 0
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for i in range(len(whole)):
            flipped = whole[:i] + bytes([whole[i] ^ (1 << (i % 8))]) + whole[i + 1 :]
            for damaged in (flipped, whole[:i]):
                file.write_bytes(damaged)
                with pytest.raises(CheckpointError):
                    load_checkpoint(path)
                n += 1
        file.write_bytes(whole + b"\n")
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
        file.unlink()
        with pytest.raises(CheckpointError, match=file.name):
            load_checkpoint(path)
        file.write_bytes(whole)
    load_checkpoint(path)
    assert n > 500


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("sound"), 1)


@given(data=st.data())
def test_any_damage_of_any_shape_is_detected(sound: Path, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(sorted(sound.iterdir())))
    whole = file.read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(max_size=20)) + whole[end:]
    try:
        file.write_bytes(damaged)
        if damaged != whole:
            with pytest.raises(CheckpointError):
                load_checkpoint(sound)
            with pytest.raises(CheckpointError, match="none of the 1"):
                latest_checkpoint(sound.parent)
    finally:
        file.write_bytes(whole)
    load_checkpoint(sound)


def test_resume_falls_back_with_a_warning_and_an_explicit_path_does_not(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    weights = tmp_path / "step-00000003" / "state.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    path, warnings = latest_checkpoint(tmp_path)
    assert path == tmp_path / "step-00000001"
    assert len(warnings) == 2
    assert str(weights) in warnings[0]
    assert "step-00000002" in warnings[1]
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        load_checkpoint(tmp_path / "step-00000003")


def test_when_none_is_sound_nobody_starts_over_silently(tmp_path: Path) -> None:
    for step in (1, 2):
        (save(tmp_path, step) / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints") as caught:
        latest_checkpoint(tmp_path)
    assert caught.value.hint


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="step-00000007"):
        load_checkpoint(tmp_path / "step-00000007")

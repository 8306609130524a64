"""The promises of a checkpoint: it survives a crash at any instant, notices any changed byte, holds no code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tests.helpers.crashing import FullDisk, every_crash
from tests.helpers.small import state_sha256
from torch import Tensor

from glassformer.errors import CheckpointError, ResourceError
from glassformer.runs import model_folder
from glassformer.runs.model_folder import latest_checkpoint, load_checkpoint, save_checkpoint, step_folders

STATE = {"progress": {"step": 3, "loss": 0.1 + 0.2, "best": None}, "name": "état"}


def some_tensors(seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 4, generator=rng)
    return {
        "model:weight": x,
        "best:weight": x,  # the same memory under a second name
        "model:transposed": x.t(),
        "model:scalar": torch.tensor(2.5),
        "model:empty": torch.empty(0, 4),
        "model:half": x.bfloat16(),
        "rng:cpu": torch.arange(5, dtype=torch.uint8),
        "optimizer:step": torch.tensor(7),
        "mask": torch.tensor([True, False]),
    }


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return save_checkpoint(folder, step, some_tensors(step), STATE | {"step": step}, keep=keep)


def assert_loads(path: Path, step: int) -> None:
    tensors, state = load_checkpoint(path)
    assert state_sha256(tensors, state) == state_sha256(some_tensors(step), STATE | {"step": step})


def steps(folder: Path) -> list[int]:
    return [*step_folders(folder)]


# Which are kept


def test_the_newest_are_kept(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) == latest_checkpoint(tmp_path / "none") == (None, [])
    for step in range(1, 7):
        save(tmp_path, step)
    assert steps(tmp_path) == [5, 6] and latest_checkpoint(tmp_path) == (tmp_path / "step-00000006", [])


def test_a_sound_checkpoint_is_never_written_over(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    before = {p.name: p.stat().st_ino for p in path.iterdir()}
    assert before.keys() == {"manifest.json", "state.json", "state.safetensors"}
    save(tmp_path, 1)
    assert {p.name: p.stat().st_ino for p in path.iterdir()} == before


def test_damage_never_costs_the_checkpoint_just_saved_and_is_replaced_when_its_step_comes_again(tmp_path: Path) -> None:
    for step in (1, 9):
        save(tmp_path, step)
    (tmp_path / "step-00000009" / "state.json").write_bytes(b"{}")
    for step in (2, 3, 9):
        save(tmp_path, step, keep=1)
        path, warnings = latest_checkpoint(tmp_path)
        assert_loads(path, step)
    assert warnings == []


# Crash-safe save


@pytest.mark.parametrize(
    ("how", "keep"), [({}, 1), ({"torn": True}, 2), ({"power_cut": True}, 1)], ids=["kill", "torn", "power cut"]
)
def test_whatever_operation_it_dies_after_the_newest_committed_loads(
    tmp_path: Path, how: dict[str, bool], keep: int
) -> None:
    found = []
    for folder, completed in every_crash(
        tmp_path, lambda f: [save(f, step, keep) for step in (1, 2)], lambda f: save(f, 3, keep), **how
    ):
        path, warnings = latest_checkpoint(folder)
        assert path is not None and warnings == []
        found.append(int(path.name[5:]))
        assert found[-1] == 3 or not completed
        assert_loads(path, found[-1])
        save(folder, 4, keep)  # whoever comes next tidies up and resumes
        assert_loads(latest_checkpoint(folder)[0], 4)
        assert not list(folder.glob(".*")) and len(step_folders(folder)) <= keep
    assert found == sorted(found) and set(found) == {2, 3}


# Disk full


def test_a_save_that_fails_keeps_the_old_one_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    with pytest.raises(TypeError):  # numbers and JSON alone
        save_checkpoint(tmp_path, 2, {}, {"code": print}, keep=1)
    FullDisk(lambda path: path.name == "state.json").install(monkeypatch)
    with pytest.raises(ResourceError, match=r"step-00000002.*No space left") as caught:
        save(tmp_path, 2)
    assert "free" in caught.value.hint
    assert steps(tmp_path) == [1] and not list(tmp_path.glob(".*"))
    assert_loads(latest_checkpoint(tmp_path)[0], 1)


def test_an_old_checkpoint_that_cannot_be_removed_does_not_fail_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "in use")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    assert_loads(save(tmp_path, 2, keep=1), 2)


# No pickle


def test_any_byte_of_any_file_flipped_or_cut_is_detected(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, {"w": torch.arange(4.0)}, {"step": 1}, keep=1)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        flipped = (whole[:i] + bytes([byte ^ (1 << (i % 8))]) + whole[i + 1 :] for i, byte in enumerate(whole))
        for damaged in (*flipped, *(whole[:i] for i in range(len(whole))), whole + b"\n"):
            file.write_bytes(damaged)
            with pytest.raises(CheckpointError):
                load_checkpoint(path)
        file.unlink()
        with pytest.raises(CheckpointError, match=file.name):
            load_checkpoint(path)
        file.write_bytes(whole)
    load_checkpoint(path)


def test_resume_falls_back_with_a_warning_and_never_starts_over_in_silence(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    weights = tmp_path / "step-00000003" / "state.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    path, warnings = latest_checkpoint(tmp_path)
    assert path == tmp_path / "step-00000001"
    assert len(warnings) == 2 and str(weights) in warnings[0] and "step-00000002" in warnings[1]
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        load_checkpoint(tmp_path / "step-00000003")
    (path / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none of the 3 checkpoints") as caught:
        latest_checkpoint(tmp_path)
    assert caught.value.hint


def test_snapshots_come_back_and_their_steps_double_from_the_sixteenth(tmp_path: Path) -> None:
    assert [s for s in range(300) if model_folder.is_snapshot_step(s)] == [0, 16, 32, 64, 128, 256]
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(1)}
    for step in (16, 0, 16):  # a resumed run passes the same update again
        assert model_folder.save_snapshot(tmp_path, step, weights)
    (zero, first), (sixteen, _) = step_folders(tmp_path).items()
    loaded = load_checkpoint(first)[0]
    assert (zero, sixteen) == (0, 16) and loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)

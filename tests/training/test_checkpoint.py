"""The promises of a checkpoint: it survives a crash at any instant, notices any changed byte, holds no code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.helpers.crashing import FullDisk, WatchedDisk, every_crash
from tests.helpers.states import state_sha256
from torch import Tensor

from glassformer.errors import CheckpointError, ResourceError
from glassformer.runs.model_folder import (
    is_snapshot_step,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    save_snapshot,
    step_folders,
)

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


# What goes in comes out


def test_round_trip_to_the_bit(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    tensors, state = load_checkpoint(path)
    assert state == STATE | {"step": 1}
    assert tensors.keys() == some_tensors(1).keys()
    for name, tensor in some_tensors(1).items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)
    assert sorted(p.name for p in path.iterdir()) == ["manifest.json", "state.json", "state.safetensors"]


# Which are kept


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 7):
        save_checkpoint(tmp_path, step, some_tensors(step), STATE)
    assert steps(tmp_path) == [5, 6]
    path, warnings = latest_checkpoint(tmp_path)
    assert path == tmp_path / "step-00000006"
    assert warnings == []


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) == (None, [])
    assert latest_checkpoint(tmp_path / "none") == (None, [])


def test_a_sound_checkpoint_is_never_written_over(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    before = {p.name: p.stat().st_ino for p in path.iterdir()}
    save(tmp_path, 1)
    assert {p.name: p.stat().st_ino for p in path.iterdir()} == before


def test_a_damaged_checkpoint_is_replaced_when_its_step_comes_again(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "state.json").write_bytes(b"{}")
    assert latest_checkpoint(tmp_path)[0] == tmp_path / "step-00000001"
    assert_loads(save(tmp_path, 2), 2)
    assert latest_checkpoint(tmp_path) == (tmp_path / "step-00000002", [])


def test_damage_further_on_never_costs_the_checkpoint_just_saved(tmp_path: Path) -> None:
    for step in (1, 9):
        save(tmp_path, step)
    (tmp_path / "step-00000009" / "state.json").unlink()
    for step in (2, 3):
        save(tmp_path, step, keep=1)
        assert_loads(latest_checkpoint(tmp_path)[0], step)


# Crash-safe save


@pytest.mark.parametrize("how", [{}, {"torn": True}, {"power_cut": True}], ids=["kill", "torn", "power cut"])
@pytest.mark.parametrize("keep", [1, 2])
def test_whatever_operation_it_dies_after_the_newest_committed_loads(
    tmp_path: Path, how: dict[str, bool], keep: int
) -> None:
    def prepare(folder: Path) -> None:
        for step in (1, 2):
            save(folder, step, keep)

    found = []
    for folder, completed in every_crash(tmp_path, prepare, lambda f: save(f, 3, keep), **how):
        path, warnings = latest_checkpoint(folder)
        step = int(path.name[5:])
        assert step == 3 if completed else step in (2, 3)
        assert_loads(path, step)
        assert warnings == []
        found.append(step)
        # Whoever comes next tidies up and resumes.
        save(folder, 4, keep)
        assert_loads(latest_checkpoint(folder)[0], 4)
        assert not list(folder.glob(".*"))
        assert len(step_folders(folder)) <= keep
    assert found == sorted(found)
    assert set(found) == {2, 3}


def test_the_first_save_of_all_may_die_too(tmp_path: Path) -> None:
    for folder, completed in every_crash(tmp_path, lambda f: None, lambda f: save(f / "checkpoints", 1)):
        path, _ = latest_checkpoint(folder / "checkpoints")
        assert path is not None or not completed
        if path is not None:
            assert_loads(path, 1)


def test_the_manifest_is_last_and_everything_is_on_the_disk_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = WatchedDisk()
    disk.install(monkeypatch)
    save(tmp_path, 1)
    log = [(what, path.name) for what, path in disk.log]
    commit = log.index(("rename", "step-00000001"))
    before, after = log[:commit], log[commit + 1 :]
    written = [name for what, name in before if what == "write"]
    assert written == ["state.safetensors", "state.json", "manifest.json"]
    for name in written:
        assert before.index(("sync", name)) == before.index(("write", name)) + 1
    assert before[-1][0] == "sync"
    assert before[-1][1].startswith(".tmp-step-00000001")
    assert after[0] == ("sync", tmp_path.name)


# Disk full


def test_a_save_that_fails_keeps_the_old_one_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    FullDisk(lambda path: path.name == "state.json").install(monkeypatch)
    with pytest.raises(ResourceError, match=r"step-00000002.*No space left") as caught:
        save(tmp_path, 2)
    assert "free" in caught.value.hint
    assert steps(tmp_path) == [1]
    assert not list(tmp_path.glob(".*"))
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


def test_a_checkpoint_holds_only_numbers_and_json(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    json.loads((path / "state.json").read_text("utf-8"))
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path, 2, {}, {"code": print}, keep=1)
    assert steps(tmp_path) == [1]
    assert not list(tmp_path.glob(".*"))


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
        (save(tmp_path, step, keep=3) / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints") as caught:
        latest_checkpoint(tmp_path)
    assert caught.value.hint


WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(1)}


def test_steps_double_from_the_sixteenth() -> None:
    assert [s for s in range(300) if is_snapshot_step(s)] == [0, 16, 32, 64, 128, 256]


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    assert save_snapshot(tmp_path / "snapshots", 16, WEIGHTS)
    assert save_snapshot(tmp_path / "snapshots", 0, WEIGHTS)
    assert save_snapshot(tmp_path / "snapshots", 16, WEIGHTS)  # a resumed run passes the same update again
    (zero, first), (sixteen, _) = step_folders(tmp_path / "snapshots").items()
    assert (zero, sixteen) == (0, 16)
    loaded = load_checkpoint(first)[0]
    assert loaded.keys() == WEIGHTS.keys()
    assert all(torch.equal(loaded[name], WEIGHTS[name]) for name in WEIGHTS)

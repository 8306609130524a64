from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glassformer.api import load, train
from glassformer.config import Config, DataConfig, FilesConfig, ModelConfig, TextConfig, TrainConfig
from glassformer.errors import CheckpointError, ResourceError
from glassformer.runs.model_folder import TENSORS, is_snapshot_step, load_checkpoint, save_snapshot, step_folders
from glassformer.training import trainer

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


def test_a_flipped_byte_is_refused(tmp_path: Path) -> None:
    save_snapshot(tmp_path / "snapshots", 0, WEIGHTS)
    file = tmp_path / "snapshots" / "step-00000000" / TENSORS
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(file.parent)


def test_a_full_disk_is_told_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise ResourceError("the disk is full")

    monkeypatch.setattr(trainer, "save_snapshot", full)
    train(small_config(tmp_path), out=tmp_path / "run")
    assert "the disk is full; this checkpoint is not saved, the previous one stays" in capsys.readouterr().err


def small_config(tmp_path: Path) -> Config:
    rows = [f"{'good' if i % 2 else 'bad'} word{i % 7}\t{i % 2}" for i in range(40)]
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return Config(
        task="classify",
        data=DataConfig(dataset="files", files=FilesConfig(train_file=str(tmp_path / "t.tsv"))),
        text=TextConfig(tokenizer="word", vocab_size=50, max_len=16),
        model=ModelConfig(n_layers=1, d_model=16, n_heads=2, d_ff=16),
        train=TrainConfig(steps=33, epochs=None, max_tokens=64, device="cpu", precision="fp32", snapshots=True),
    )


def test_a_run_keeps_its_start_and_its_doublings(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(small_config(tmp_path), out=out)
    assert [*step_folders(out / "snapshots")] == [0, 16, 32]
    first, second = (load_checkpoint(path)[0] for path in [*step_folders(out / "snapshots").values()][:2])
    names = dict(load(out).model.named_parameters()).keys()
    assert first.keys() == second.keys() == names
    assert any(not torch.equal(first[n], second[n]) for n in names), "training moved nothing"

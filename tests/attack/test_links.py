"""Nothing outside of a run is written or deleted through a link in it; the run itself may be a link."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.attack.conftest import Victims
from tests.helpers.hostile import query

PARTS = ["checkpoints", "snapshots", "plots", "means", "exports", "model", "metrics.jsonl", "predictions.jsonl"]


def outside(folder: Path) -> Path:
    """A folder of somebody, with what cleaning up would delete."""
    own = folder / "own"
    (own / ".tmp-notes").mkdir(parents=True)
    (own / ".tmp-notes" / "n.txt").write_text("kept", "utf-8")
    (own / "metrics.jsonl").write_text("own\n", "utf-8")
    (own / "old.png").write_bytes(b"own")
    return own


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def unfinished(victims: Victims, run: Path) -> Path:
    shutil.copytree(victims.run, run)
    for name in ("model", "evaluation.json", "report.md"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return run


@pytest.mark.parametrize("part", PARTS)
def test_a_run_with_a_link_is_not_resumed(victims: Victims, tmp_path: Path, part: str) -> None:
    run, own = unfinished(victims, tmp_path / "run"), outside(tmp_path)
    before = contents(own)
    path = run / part
    if path.exists():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(own / part if "." in part else own)
    answer = query("train", "--resume", run)
    assert answer.code == 4 and "is a link" in answer.err
    assert contents(own) == before


def test_a_link_deeper_inside_is_refused_too(victims: Victims, tmp_path: Path) -> None:
    run, own = unfinished(victims, tmp_path / "run"), outside(tmp_path)
    before = contents(own)
    (run / "plots" / "deeper").symlink_to(own)
    assert query("train", "--resume", run).code == 4
    assert contents(own) == before


def test_the_run_itself_may_be_a_link(victims: Victims, tmp_path: Path) -> None:
    unfinished(victims, tmp_path / "disk" / "run")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "linked").symlink_to(tmp_path / "disk" / "run")
    assert query("train", "--resume", tmp_path / "linked").code == 0
    assert (tmp_path / "disk" / "run" / "report.md").is_file()
    assert query("predict", tmp_path / "runs" / "run", "a good film", "--json").out == victims.answer.out


def test_a_linked_seed_is_refused(victims: Victims, tmp_path: Path) -> None:
    seeds, own = tmp_path / "seeds", outside(tmp_path)
    seeds.mkdir()
    config = '{"seeds": [1, 2], "config": {"task": "classify"}}'
    (seeds / "seeds.json").write_text(config, "utf-8")
    (seeds / "seed-1").symlink_to(own)
    before = contents(own)
    assert query("train", "--resume", seeds).code == 4
    assert contents(own) == before

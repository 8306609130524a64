"""Runs of which every process holds a share of the model: their folders are those of any other run."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from .test_ranks import curve, ended, new_run, saved, start, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torchrun, gloo and POSIX signals")


@pytest.mark.slow
def test_a_sharded_run_of_two_goes_on_in_one_and_in_three_and_gives_a_model(tmp_path: Path) -> None:
    [alone] = start(tmp_path, 1, *new_run(tmp_path, "whole", "--snapshots", "--epochs", "4"))
    assert alone.wait(180)[0] == 0
    go_on = ("train", "--resume", str(tmp_path / "parts"))
    began = new_run(tmp_path, "parts", "--shard", "--snapshots", "--epochs", "4")
    for size, arguments in ((2, began), (1, go_on)):
        before = saved(tmp_path, "parts")
        processes = start(tmp_path, size, *arguments)
        wait_for(lambda before=before: saved(tmp_path, "parts")[-1:] > before[-1:], processes[0])
        processes[0].send(signal.SIGTERM)
        codes, said = ended(processes)
        assert codes == [143] * size, said
    codes, said = ended(start(tmp_path, 3, *go_on))
    assert codes == [0, 0, 0], said
    for name, values in curve(tmp_path, "whole").items():
        assert curve(tmp_path, "parts")[name] == pytest.approx(values, rel=1e-5), name
    names = [
        {p.relative_to(tmp_path / run) for p in (tmp_path / run).rglob("*") if "checkpoints" not in p.parts}
        for run in ("whole", "parts")
    ]
    assert names[0] == names[1]
    [used] = start(tmp_path, 1, "predict", str(tmp_path / "parts"), "a good film")
    assert used.wait(60)[0] == 0, used.text()

"""Real processes, really killed: whatever the instant, the run ends in the weights it would have had."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from tests.helpers.small_runs import FLAGS, command, write_table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def outcome(run: Path) -> tuple[bytes, int]:
    """The weights of a run, and how many updates it logs."""
    logged = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return (run / "model" / "model.safetensors").read_bytes(), len(logged)


def test_a_killed_run_ends_in_the_same_weights(tmp_path: Path) -> None:
    """Really killed: the run ends in the weights it would have had, and its log has every update once."""
    settings = ("--train-file", str(write_table(tmp_path)), "--epochs", "30", "--save-every", "7", *FLAGS)
    whole, hit = tmp_path / "whole", tmp_path / "hit"
    code, output = command(tmp_path / "1", "train", "classify", "--out", str(whole), *settings).wait(180)
    assert code == 0, output
    process = command(tmp_path / "2", "train", "classify", "--out", str(hit), *settings)
    process.until(lambda: any((hit / "checkpoints").glob("step-*")))
    process.send(signal.SIGKILL)
    assert process.wait(60)[0] == -signal.SIGKILL
    code, output = command(tmp_path / "3", "train", "--resume", str(hit)).wait(180)
    assert code == 0 and outcome(hit) == outcome(whole), output

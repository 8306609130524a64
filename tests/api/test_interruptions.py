"""Real processes, really killed: whatever the instant, the run ends in the weights it would have had."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from tests.api.test_end_to_end import write_reviews
from tests.helpers.forking import Command
from tests.helpers.small_runs import command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
FLAGS = (
    "--epochs 2 --save-every 7 --max-tokens 200 --device cpu --precision fp32 --text.max-len 40 "
    "--text.vocab-size 300 --model.ensemble-size 1 "
    "--model.n-layers 1 --model.d-model 32 --model.n-heads 2 --model.d-ff 64"
).split()


def start(tmp_path: Path, *arguments: str) -> Command:
    return command(tmp_path / f"said-{time.monotonic_ns()}", "train", *arguments)


def new_run(tmp_path: Path, name: str) -> tuple[str, ...]:
    file = tmp_path / "r.csv"
    if not file.exists():
        write_reviews(file)
    return ("classify", "--train-file", str(file), "--out", str(tmp_path / name), *FLAGS)


def outcome(run: Path) -> tuple[bytes, int]:
    """The weights of a run, and how many updates it logs."""
    logged = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return (run / "model" / "model.safetensors").read_bytes(), len(logged)


def test_a_killed_run_ends_in_the_same_weights(tmp_path: Path) -> None:
    """Really killed: the run ends in the weights it would have had, and its log has every update once."""
    code, output = start(tmp_path, *new_run(tmp_path, "whole")).wait(180)
    assert code == 0, output
    process = start(tmp_path, *new_run(tmp_path, "hit"))
    process.until(lambda: any((tmp_path / "hit" / "checkpoints").glob("step-*")))
    process.send(signal.SIGKILL)
    assert process.wait(60)[0] == -signal.SIGKILL
    code, output = start(tmp_path, "--resume", str(tmp_path / "hit")).wait(180)
    assert code == 0 and outcome(tmp_path / "hit") == outcome(tmp_path / "whole"), output

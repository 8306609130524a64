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


def finish(tmp_path: Path, name: str) -> tuple[bytes, int]:
    code, output = start(tmp_path, "--resume", str(tmp_path / name)).wait(180)
    assert code == 0, output
    return outcome(tmp_path / name)


def outcome(run: Path) -> tuple[bytes, int]:
    """The weights of a run, and how many updates it logs."""
    logged = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return (run / "model" / "model.safetensors").read_bytes(), len(logged)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """What a run comes to that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    code, output = start(folder, *new_run(folder, "whole")).wait(180)
    assert code == 0, output
    return outcome(folder / "whole")


@pytest.mark.parametrize(("number", "expected_code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_killed_and_terminated_runs_end_in_the_same_weights(
    whole: tuple[bytes, int], tmp_path: Path, number: signal.Signals, expected_code: int
) -> None:
    process = start(tmp_path, *new_run(tmp_path, "hit"))
    process.until(lambda: any((tmp_path / "hit" / "checkpoints").glob("step-*")))
    process.send(number)
    code, output = process.wait(60)
    assert code == expected_code, output
    assert number == signal.SIGKILL or "--resume" in output, "it must say how to go on"
    assert finish(tmp_path, "hit") == whole, "the log has every update once"

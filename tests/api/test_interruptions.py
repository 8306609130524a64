"""Real processes, really killed: whatever the instant, the run goes on to the weights it would have had."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.api.test_end_to_end import write_reviews
from tests.helpers.forking import Command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
FLAGS = (
    "--epochs 2 --save-every 7 --max-tokens 200 --device cpu --precision fp32 --text.max-len 40 "
    "--text.vocab-size 300 --model.ensemble-size 1 "
    "--model.n-layers 1 --model.d-model 32 --model.n-heads 2 --model.d-ff 64"
).split()


def start(tmp_path: Path, *arguments: str) -> Command:
    output = tmp_path / f"said-{len(list(tmp_path.glob('output-*')))}"
    return Command(output, ("train", *arguments), {"GLASSFORMER_CACHE": str(tmp_path / "cache")})


def new_run(tmp_path: Path, name: str) -> tuple[str, ...]:
    file = tmp_path / "r.csv"
    if not file.exists():
        write_reviews(file)
    return ("classify", "--train-file", str(file), "--out", str(tmp_path / name), *FLAGS)


def wait_for(condition: Callable[[], bool], process: Command) -> None:
    """Until it holds; the process must not end before."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.returncode is None, process.text()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def finish(tmp_path: Path, name: str) -> bytes:
    code, output = start(tmp_path, "--resume", str(tmp_path / name)).wait(180)
    assert code == 0, output
    return weights(tmp_path, name)


def weights(tmp_path: Path, name: str) -> bytes:
    return (tmp_path / name / "model" / "model.safetensors").read_bytes()


def test_killed_stopped_and_terminated_runs_end_in_the_same_weights(tmp_path: Path) -> None:
    code, output = start(tmp_path, *new_run(tmp_path, "whole")).wait(180)
    assert code == 0, output
    expected = weights(tmp_path, "whole")
    log = (tmp_path / "whole" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()

    for name, number, expected_code in (
        ("term", signal.SIGTERM, 143),
        ("int", signal.SIGINT, 130),
        ("kill", signal.SIGKILL, -9),
    ):
        process = start(tmp_path, *new_run(tmp_path, name))
        folder = tmp_path / name / "checkpoints"
        wait_for(lambda folder=folder: any(folder.glob("step-*")), process)
        process.send(number)
        code, output = process.wait(60)
        assert code == expected_code, output
        if number != signal.SIGKILL:
            assert "--resume" in output, "it must say how to go on"
        assert finish(tmp_path, name) == expected
        lines = (tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(log), "the log has every update once"


@pytest.mark.slow
def test_random_kills_over_and_over(tmp_path: Path) -> None:
    """SIGKILL at random instants of start, training and saving, each followed by a resume."""
    code, output = start(tmp_path, *new_run(tmp_path, "whole")).wait(180)
    assert code == 0, output
    process = start(tmp_path, *new_run(tmp_path, "hit"))
    wait_for(lambda: (tmp_path / "hit" / "config.toml").exists(), process)
    for i in range(8):
        time.sleep(0.05 + 0.37 * i)
        process.send(signal.SIGKILL)
        process.wait(60)
        process = start(tmp_path, "--resume", str(tmp_path / "hit"))
    code, output = process.wait(180)
    assert code == 0, output
    assert weights(tmp_path, "hit") == weights(tmp_path, "whole")

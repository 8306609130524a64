"""A training whose streams are lost trains on; one that is not finished never exits with 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.small_runs import FLAGS, command, write_table

if sys.platform == "win32":
    pytest.skip("pipes and signals as POSIX has them", allow_module_level=True)


def lose(*numbers: int) -> None:
    """Put a pipe without a reader in the place of streams."""
    reading, writing = os.pipe()
    os.close(reading)
    for number in numbers:
        os.dup2(writing, number)
    os.close(writing)


def lose_stderr() -> None:
    lose(2)


def lose_both() -> None:
    lose(1, 2)


def fill_stderr() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def close_both() -> None:
    os.close(1)
    os.close(2)


def new_run(folder: Path, steps: int = 12) -> list[str]:
    table = write_table(folder)
    return [
        "train",
        "classify",
        "--train-file",
        str(table),
        *FLAGS,
        "--steps",
        str(steps),
        "--out",
        str(folder / "run"),
    ]


@pytest.mark.parametrize("before", [lose_stderr, lose_both, fill_stderr, close_both])
def test_a_training_without_readers_is_finished(tmp_path: Path, before: Callable[[], None]) -> None:
    code, _ = command(tmp_path / "output.txt", *new_run(tmp_path), before=before).wait(120)
    finished = (tmp_path / "run" / "report.md").is_file()
    assert finished and code == 0, f"training stopped with {code}"
    assert len((tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()) == 12


@pytest.mark.slow
@pytest.mark.parametrize("n_lines", [0, 1, 3, 8, 10, 12, 14])
def test_a_reader_that_goes_after_some_lines_stops_nothing(tmp_path: Path, n_lines: int) -> None:
    """As `glassformer train … 2>&1 | head -N`, in each stage from the first line to the last."""
    own = {"OMP_NUM_THREADS": "1", "GLASSFORMER_CACHE": str(tmp_path / "cache")}
    arguments = [sys.executable, "-m", "glassformer", *new_run(tmp_path)]
    with subprocess.Popen(arguments, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for _ in range(n_lines):
            process.stdout.readline()
        process.stdout.close()
        code = process.wait(180)
    assert (code == 0) == (tmp_path / "run" / "report.md").is_file()
    assert code == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_terminal_that_closes_hangs_up_and_the_run_is_resumed(tmp_path: Path) -> None:
    """A terminal of its own, closed while the bar is drawn: the kernel sends SIGHUP and stderr gives an error."""
    import pty

    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where nohup started the tests
        os.environ["GLASSFORMER_CACHE"] = str(tmp_path / "cache")
        os.execv(sys.executable, [sys.executable, "-m", "glassformer", *new_run(tmp_path, 2000), "--save-every", "5"])
    while not any((tmp_path / "run" / "checkpoints").glob("step-*")):
        os.read(terminal, 10000)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert any((tmp_path / "run" / "checkpoints").glob("step-*"))

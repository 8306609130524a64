"""What may befall one process of several: a full disk, a loss that is no number, no answer, a port that is taken."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.test_several_processes import curve, ended, new_run, saved, start, torchrun
from tests.distributed.together import environment_of
from tests.helpers.crashing import FullDisk
from tests.helpers.forking import Command

from glassformer import distributed
from glassformer.training import loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torchrun, gloo and POSIX signals")


def fill_disk() -> None:
    """The second checkpoint finds the disk full, in the middle of its tensors; before and after there is room."""
    disk = FullDisk(lambda path: path.name == "state.safetensors" and "step-00000014" in str(path))
    disk.install(pytest.MonkeyPatch())


def fall_silent() -> None:
    """The last process stops responding from the ninth step on, and nobody waits long."""
    distributed.TIMEOUT = timedelta(seconds=6)
    step = loop.optimizer_step

    def silent(state: Any, run: Any, *args: Any) -> Any:
        if state.progress.step >= 8 and run.group.rank == run.group.world_size - 1:
            time.sleep(600)
        return step(state, run, *args)

    loop.optimizer_step = silent


@pytest.mark.slow
def test_a_full_disk_of_the_first_is_named_and_all_train(tmp_path: Path) -> None:
    short = ("--epochs", "2")
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "whole", *short)))
    assert codes == [0, 0], output
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "cut", *short), before=fill_disk))
    assert codes == [0, 0], output
    assert output[0].count("this checkpoint is not saved, the previous one stays") == 1 and output[1] == "", output
    assert "step-00000014" not in saved(tmp_path, "cut") and "step-00000028" in saved(tmp_path, "cut")
    assert curve(tmp_path, "cut") == curve(tmp_path, "whole")


@pytest.mark.slow
def test_one_that_does_not_answer_ends_the_others_with_a_sentence(tmp_path: Path) -> None:
    processes = start(tmp_path, 3, *new_run(tmp_path, "run"), before=fall_silent)
    began = time.monotonic()
    codes, output = ended(processes[:2], 90)
    assert time.monotonic() - began < 90 and processes[2].returncode is None
    processes[2].send(signal.SIGKILL)
    assert codes == [6, 6], output
    for message in output:
        assert message.count("or kept the others waiting for 0.1 minutes, at step 9") == 1, output
        assert f"--resume {tmp_path / 'run'}" in message
    assert saved(tmp_path, "run")[-1] == "step-00000007"


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_and_not_waited_for(tmp_path: Path) -> None:
    """By the first process; under torchrun by torchrun, which then starts none."""
    arguments = new_run(tmp_path, "run")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, output = Command(tmp_path / "said", arguments, environment_of(0, 2, port)).wait(60)
        assert code == 2 and "the 2 processes of this run cannot meet" in output and "EADDRINUSE" in output, output
        assert "--master-port that is free" in output
        with torchrun(tmp_path, 2, "--master-port", str(port), "-m", "glassformer", *arguments) as launcher:
            assert launcher.wait(60) == 1
    assert not os.path.exists(tmp_path / "run")

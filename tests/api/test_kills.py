"""Random ranks of random runs, killed at random instants: each run goes on where its last checkpoint stands.

`GLASSFORMER_KILLS` says how many; `make test-all` kills 200, a plain run of the slow tests fewer.
"""

import os
import random
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.distributed.test_several_processes import assert_same_curve, ended, new_run, saved, start

from glassformer.runs.model_folder import latest_checkpoint

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gloo and POSIX signals")
KILLS = int(os.environ.get("GLASSFORMER_KILLS", "12"))


def strike(tmp_path: Path, rng: random.Random, name: str, flags: tuple[str, ...], seconds: float) -> str:
    """Start a run, or resume it, in two or three processes; kill one. Returns where that found the run.

    What must hold: the newest checkpoint is sound and never older than it was, those that are left end by themselves or
    with torchrun's SIGTERM, and what goes on does so from that checkpoint.
    """
    folder, size = tmp_path / name / "checkpoints", rng.choice([2, 3])
    before = saved(tmp_path, name)[-1:]
    processes = start(tmp_path, size, *new_run(tmp_path, name, "--auto-resume", *flags))
    time.sleep(rng.uniform(0.0, seconds))
    processes[lost := rng.randrange(size)].send(signal.SIGKILL)
    time.sleep(0.2)
    torn = bool(list(folder.glob(".tmp-*")))
    for process in processes:  # as torchrun does: who waits for the dead to come would wait on
        if process.returncode is None:
            process.send(signal.SIGTERM)
    codes, output = ended(processes, 90)
    assert {code for rank, code in enumerate(codes) if rank != lost} <= {0, 6, 143, -signal.SIGTERM}, output
    after, warnings = latest_checkpoint(folder)
    assert not warnings, "every committed checkpoint is sound"
    assert saved(tmp_path, name)[-1:] >= before
    resumed = re.findall(r"resumed at step ([\d,]+)", "".join(output))
    assert not resumed or before == [f"step-{int(resumed[0].replace(',', '')):08d}"]
    if codes[lost] != -signal.SIGKILL:
        return "had ended"
    if torn:
        return "while saving"
    if after is None:
        return "before the first checkpoint"
    return "after the last" if (tmp_path / name / "model").exists() else "between two checkpoints"


@pytest.mark.slow
def test_runs_whose_processes_are_killed_all_come_to_their_end(tmp_path):
    rng, flags = random.Random(int(os.environ.get("GLASSFORMER_SEED", "0"))), ("--epochs", "5", "--lr", "3e-4")
    flags += ("--save-every", "2")
    ended(start(tmp_path, 1, "--version"))  # what all are forked from has imported torch: not a run's time
    began = time.monotonic()
    codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, "whole", *flags)))
    assert codes == [0, 0], output
    seconds, found, run, done = time.monotonic() - began, Counter[str](), 0, False
    while not done:
        name = f"run-{run}"
        if not (done := found.total() - found["had ended"] >= KILLS):
            found[strike(tmp_path, rng, name, flags, seconds)] += 1
            print(f"{found.total()} starts, {run} runs finished: {dict(found)}", flush=True)
        if done or rng.random() < 0.05 or (tmp_path / name / "report.md").exists():
            codes, output = ended(start(tmp_path, 2, *new_run(tmp_path, name, "--auto-resume", *flags)))
            assert codes == [0, 0], output
            assert_same_curve(tmp_path, "whole", name)
            assert not list((tmp_path / name).rglob(".tmp-*"))
            run += 1
    print(f"{KILLS} kills, {run} runs, all went on and came to their end; no folder was unreadable: {dict(found)}")
